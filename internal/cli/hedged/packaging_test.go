package hedged

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/internal/config"
)

const packaging = "../../../packaging/"

// The file that is shipped is one, and says nothing that the defaults do not; with
// the lines that it has in comments it is one too.
func TestShippedSettings(t *testing.T) {
	blob, err := os.ReadFile(packaging + "hedged.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, services, ok := strings.Cut(string(blob), "# services:\n")
	if !ok {
		t.Fatal("it shows no services")
	}
	load := func(text string) *config.Config {
		t.Helper()
		path := filepath.Join(t.TempDir(), "hedged.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Default("/state"), config.Input{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var got, want bytes.Buffer
	if err := load(string(blob)).Print(&got); err != nil {
		t.Fatal(err)
	}
	if err := config.Default("/state").Print(&want); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("it prints as\n%s\nwant the defaults:\n%s", &got, &want)
	}
	all := load(head + "services:\n" + strings.ReplaceAll("\n"+services, "\n#", "\n"))
	if n := len(all.Daemon.Services.Rules); n != 3 {
		t.Errorf("%d services in the comments, want 3", n)
	}
}

// What the unit promises the daemon, and it the unit, agrees with the code.
func TestUnit(t *testing.T) {
	blob, err := os.ReadFile(packaging + "hedged.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string]string{}
	for line := range strings.Lines(string(blob)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if _, again := unit[key]; !ok || again && key != "SystemCallFilter" {
			t.Errorf("%q is no setting, or the second of its name", line)
		}
		unit[key] = value
	}
	words := strings.Fields(unit["ExecStart"])
	cmd := NewCommand(&bytes.Buffer{}, &bytes.Buffer{})
	if err := cmd.ParseFlags(words[1:]); err != nil {
		t.Errorf("ExecStart: %v", err)
	}
	if got := cmd.Flag("state-dir").Value.String(); got != "/var/lib/"+unit["StateDirectory"] {
		t.Errorf("--state-dir is %s, and StateDirectory %s", got, unit["StateDirectory"])
	}
	if got := cmd.Flag("config").Value.String(); got != "/etc/"+unit["ConfigurationDirectory"]+"/hedged.yaml" {
		t.Errorf("--config is %s, and ConfigurationDirectory %s", got, unit["ConfigurationDirectory"])
	}
	// Without its socket's family the daemon is never ready.
	if unit["Type"] != "notify" || !strings.Contains(unit["RestrictAddressFamilies"], "AF_UNIX") {
		t.Errorf("Type %s with RestrictAddressFamilies %s", unit["Type"], unit["RestrictAddressFamilies"])
	}
	stop, err := time.ParseDuration(unit["TimeoutStopSec"])
	if least := config.Default("/state").Daemon.ShutdownTimeout; err != nil || stop <= least {
		t.Errorf("TimeoutStopSec %s, %v, want more than the %v of shutdown_timeout", unit["TimeoutStopSec"], err, least)
	}
}
