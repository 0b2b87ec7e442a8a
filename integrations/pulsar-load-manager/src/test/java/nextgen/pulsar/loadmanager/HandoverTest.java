package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class HandoverTest {
    @Test
    void anAnswerWithoutTopicsIsOneMessage() {
        List<ObjectNode> pages = Handover.pages(7, true, List.of());

        assertEquals("[{\"kind\":\"open\",\"number\":7,\"by_topic\":true,\"last\":true,\"topics\":[]}]",
                pages.toString());
    }

    @Test
    void onlyTheLastMessageSaysThatItIs() {
        List<ObjectNode> one = Handover.pages(7, false, topics(Handover.TOPICS_PER_MESSAGE));
        List<ObjectNode> two = Handover.pages(7, false, topics(Handover.TOPICS_PER_MESSAGE + 1));

        assertEquals(1, one.size());
        assertEquals(2, two.size());
        assertFalse(two.get(0).get("last").asBoolean());
        assertTrue(two.get(1).get("last").asBoolean());
        assertEquals(1, two.get(1).get("topics").size());
    }

    private static List<ObjectNode> topics(int count) {
        return IntStream.range(0, count)
                .mapToObj(number -> Messages.object().put("topic", "t-" + number)).toList();
    }
}
