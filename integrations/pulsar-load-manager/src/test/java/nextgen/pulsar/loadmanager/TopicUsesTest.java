package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class TopicUsesTest {
    private final TopicUses uses = new TopicUses();

    @Test
    void theFirstMessagesNameAllThatIsOpen() {
        assertEquals("[{\"kind\":\"topics\",\"first\":true,\"last\":true,"
                + "\"used\":[\"a\"],\"unused\":[\"b\"],\"closed\":[]}]",
                uses.changes(Map.of("a", true, "b", false)).toString());
    }

    @Test
    void thereIsAFirstMessageEvenIfNothingIsOpen() {
        assertEquals(1, uses.changes(Map.of()).size());
    }

    @Test
    void onlyChangesFollow() {
        uses.changes(Map.of("a", true, "b", false, "c", true));

        assertEquals(List.of(), uses.changes(Map.of("a", true, "b", false, "c", true)));
        assertEquals("[{\"kind\":\"topics\",\"first\":false,\"last\":true,"
                + "\"used\":[\"b\"],\"unused\":[\"a\"],\"closed\":[\"c\"]}]",
                uses.changes(Map.of("a", false, "b", true)).toString());
    }

    @Test
    void anotherSidecarHearsOfAllAgain() {
        uses.changes(Map.of("a", true));
        uses.forget();

        assertTrue(uses.changes(Map.of("a", true)).get(0).get("first").asBoolean());
    }

    @Test
    void manyTopicsTakeSeveralMessagesOfWhichEachIsSmallEnough() {
        Map<String, Boolean> present = new HashMap<>();
        for (int number = 0; number < 20_000; number++) {
            present.put("persistent://acme/orders/a-topic-with-a-name-of-some-length-" + number, true);
        }
        List<ObjectNode> messages = uses.changes(present);

        assertTrue(messages.size() > 1);
        assertEquals(20_000, messages.stream().mapToInt(each -> each.get("used").size()).sum());
        assertTrue(messages.stream().allMatch(
                each -> Messages.line(each).length() < Messages.LINE_BYTES_MAX));
        assertEquals(1, messages.stream().filter(each -> each.get("last").asBoolean()).count());
        assertTrue(messages.get(messages.size() - 1).get("last").asBoolean());
    }
}
