package nextgen.pulsar.loadmanager;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.apache.pulsar.PulsarVersion;
import org.junit.jupiter.api.Test;

class ReleaseTest {
    @Test
    void theBuildSaysWhichPulsarItIsFor() throws IOException {
        assertEquals(PulsarVersion.getVersion(), Release.installed().pulsar());
        assertTrue(Release.installed().plugin().matches("\\d+\\.\\d+\\.\\d+.*"));
    }
}
