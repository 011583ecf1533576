package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// A daemon takes its file in anew on SIGHUP and by itself; one with a mistake
// changes nothing and is told of everywhere, until it is mended.
func TestReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hedged.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("services: {checkout: {target: 3%}}\n")
	p := startDaemon(t, t.TempDir(), "--config", file)
	service := func(name string) *hedgedv1.ServiceStatus {
		t.Helper()
		r, err := p.admin.ListServices(t.Context(), &hedgedv1.ListServicesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.GetServices() {
			if s.GetName() == name {
				return s
			}
		}
		return nil
	}
	status := func() *hedgedv1.GetStatusResponse {
		t.Helper()
		r, err := p.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if s := service("default/checkout"); s.GetTarget() != .03 {
		t.Fatalf("target of the file: %v, want 0.03", s.GetTarget())
	}
	if st := status(); st.GetConfigFile() != file || st.GetConfigError() != "" {
		t.Errorf("configuration %q with error %q, want %q without", st.GetConfigFile(), st.GetConfigError(), file)
	}

	write("services: {checkout: {target: 4%}, search: {mode: shadow}}\n")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the new file is in force", func() bool {
		return service("default/checkout").GetTarget() == .04 && service("default/search") != nil
	})

	write("services: {checkout: {target: 40}}\n")
	await(t, "the mistake is seen without a signal", func() bool { return status().GetConfigError() != "" })
	if got, want := status().GetConfigError(), file+":1: target: 40, want 0.001 to 0.5"; got != want {
		t.Errorf("error of the configuration %q, want %q", got, want)
	}
	if s := service("default/checkout"); s.GetTarget() != .04 {
		t.Errorf("target %v after a bad file, want the 0.04 from before", s.GetTarget())
	}
	if page, err := p.get("/metrics"); err != nil || !strings.Contains(page, "\nhedged_config_refused 1\n") {
		t.Errorf("/metrics does not say that the configuration was refused (%v)", err)
	}
	if len(p.log.lines("configuration refused", "want 0.001 to 0.5")) == 0 {
		t.Error("the log does not say that the configuration was refused")
	}

	write("cadence: 2s\nservices: {checkout: {target: 4%}}\n")
	await(t, "a change that needs a restart is refused", func() bool {
		return status().GetConfigError() == "cadence: a change from 1s to 2s needs a restart"
	})

	write("services: {checkout: {target: 2%}}\n")
	await(t, "the mended file is in force", func() bool {
		return status().GetConfigError() == "" && service("default/checkout").GetTarget() == .02
	})
}
