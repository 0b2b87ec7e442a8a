package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** The messages of the sidecar's socket: one JSON object a line, whose "kind" says what it is. */
final class Messages {
    /** Raised when a message changes its meaning. Both sides must have the same. */
    static final int PROTOCOL = 3;

    /** One message, its end included: as much as the sidecar takes. */
    static final int LINE_BYTES_MAX = 1024 * 1024;

    private static final ObjectMapper JSON =
            new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    private Messages() {
    }

    static ObjectNode message(String kind) {
        return object().put("kind", kind);
    }

    static ObjectNode object() {
        return JSON.createObjectNode();
    }

    static String line(ObjectNode message) {
        try {
            return JSON.writeValueAsString(message) + "\n";
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Return a message, or fail if the line is none. */
    static JsonNode parse(String line) throws IOException {
        JsonNode message;
        try {
            message = JSON.readTree(line);
        } catch (JsonProcessingException e) {
            throw new IOException("the sidecar sent no JSON: " + e.getOriginalMessage(), e);
        }
        if (message == null || !message.isObject() || !message.path("kind").isTextual()) {
            throw new IOException("the sidecar sent what is no message");
        }
        return message;
    }

    static String text(JsonNode message, String field) throws IOException {
        JsonNode value = message.get(field);
        if (value == null || !value.isTextual()) {
            throw new IOException("the sidecar sent no " + field);
        }
        return value.asText();
    }

    static List<String> texts(JsonNode message, String field) throws IOException {
        JsonNode values = message.get(field);
        if (values == null || !values.isArray()) {
            throw new IOException("the sidecar sent no " + field);
        }
        List<String> texts = new ArrayList<>();
        for (JsonNode value : values) {
            if (!value.isTextual()) {
                throw new IOException("the sidecar sent " + field + " that are no texts");
            }
            texts.add(value.asText());
        }
        return texts;
    }

    static long number(JsonNode message, String field) throws IOException {
        return number(message, field, Long.MAX_VALUE);
    }

    static long number(JsonNode message, String field, long most) throws IOException {
        JsonNode value = message.get(field);
        if (value == null || !value.isIntegralNumber() || !value.canConvertToLong()) {
            throw new IOException("the sidecar sent no " + field);
        }
        long number = value.asLong();
        if (number < 0 || number > most) {
            throw new IOException("the sidecar sent " + field + " as " + number + ", it is 0 to " + most);
        }
        return number;
    }
}
