package nextgen.pulsar.loadmanager;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Which of the topics that are placed one by one are open, and which of them are in use: what the
 * sidecar was told of it, and the messages that bring it up to date.
 *
 * <p>Only changes are told, so a broker with many topics that nothing happens to sends nothing.
 */
final class TopicUses {
    private static final int PAGE_CHARACTERS_MAX = 256 * 1024;

    private Map<String, Boolean> told = new HashMap<>();
    private boolean isFirst = true;

    /** Begin anew: another sidecar knows nothing. */
    void forget() {
        told = new HashMap<>();
        isFirst = true;
    }

    /** Return the messages about all changes. {@code present}: whether each open topic is in use. */
    List<ObjectNode> changes(Map<String, Boolean> present) {
        Pages pages = new Pages(isFirst);
        present.forEach((topic, isUsed) -> {
            if (!isUsed.equals(told.get(topic))) {
                pages.add(isUsed ? "used" : "unused", topic);
            }
        });
        told.keySet().forEach(topic -> {
            if (!present.containsKey(topic)) {
                pages.add("closed", topic);
            }
        });
        told = new HashMap<>(present);
        isFirst = false;
        return pages.finished();
    }

    private static final class Pages {
        private final List<ObjectNode> pages = new ArrayList<>();
        private ObjectNode last;
        private int characters;

        private Pages(boolean isFirst) {
            if (isFirst) {
                last = page().put("first", true);
            }
        }

        private void add(String list, String topic) {
            if (last == null || characters + topic.length() > PAGE_CHARACTERS_MAX) {
                last = page();
            }
            ((ArrayNode) last.get(list)).add(topic);
            characters += topic.length();
        }

        private ObjectNode page() {
            characters = 0;
            ObjectNode page = Messages.message("topics").put("first", false).put("last", false);
            page.putArray("used");
            page.putArray("unused");
            page.putArray("closed");
            pages.add(page);
            return page;
        }

        private List<ObjectNode> finished() {
            if (last != null) {
                last.put("last", true);
            }
            return pages;
        }
    }
}
