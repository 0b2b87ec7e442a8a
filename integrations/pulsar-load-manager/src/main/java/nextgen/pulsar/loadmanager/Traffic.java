package nextgen.pulsar.loadmanager;

import org.apache.pulsar.broker.service.AbstractTopic;
import org.apache.pulsar.broker.service.Topic;

/** What a topic has taken and given out, in all or a second. */
record Traffic(double messagesIn, double messagesOut, double bytesIn, double bytesOut) {
    static final Traffic NONE = new Traffic(0, 0, 0, 0);

    /** Return what Pulsar has counted since the topic was opened. */
    static Traffic countedBy(Topic topic) {
        return topic instanceof AbstractTopic counted
                ? new Traffic(counted.getMsgInCounter(), counted.getMsgOutCounter(),
                        counted.getBytesInCounter(), counted.getBytesOutCounter())
                : NONE;
    }

    /** Return the rates since {@code earlier}. A topic that was opened anew counts from 0. */
    Traffic since(Traffic earlier, double seconds) {
        Traffic from = messagesIn < earlier.messagesIn || messagesOut < earlier.messagesOut ? NONE : earlier;
        return new Traffic((messagesIn - from.messagesIn) / seconds,
                (messagesOut - from.messagesOut) / seconds,
                Math.max(0, bytesIn - from.bytesIn) / seconds,
                Math.max(0, bytesOut - from.bytesOut) / seconds);
    }

    Traffic plus(Traffic other) {
        return new Traffic(messagesIn + other.messagesIn, messagesOut + other.messagesOut,
                bytesIn + other.bytesIn, bytesOut + other.bytesOut);
    }

    double bytesBothWays() {
        return bytesIn + bytesOut;
    }
}
