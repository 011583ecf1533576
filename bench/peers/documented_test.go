package peers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon"
)

// The clients of docs/xds.md are these files, letter by letter.
func TestDocumentedClientsAreTheseFiles(t *testing.T) {
	doc, err := os.ReadFile("../../docs/xds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"python/client.py", "subscribe/main.go", "python/requirements.txt"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), "\n"+string(b)+"```") {
			t.Errorf("docs/xds.md does not show %s as it is", file)
		}
	}
}

// They follow a daemon's policy.
func TestDocumentedClients(t *testing.T) {
	if !wanted(t) {
		return
	}
	for name, command := range map[string]func(t *testing.T) *exec.Cmd{"Go": goClient, "Python": pythonClient} {
		t.Run(name, func(t *testing.T) {
			addr := startDaemon(t)
			c := command(t)
			c.Args = append(c.Args, addr, "default/orders")
			p := startKilled(t, c)
			p.hear("default/orders MODE_SHADOW")
			off(t, addr)
			p.hear("default/orders MODE_OFF")
		})
	}
}

func goClient(t *testing.T) *exec.Cmd {
	bin := filepath.Join(t.TempDir(), "subscribe")
	if out, err := exec.Command("go", "build", "-o", bin, "./subscribe").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exec.Command(bin)
}

func pythonClient(t *testing.T) *exec.Cmd {
	const python = "python/env/bin/python" // made by .ci/run peers
	generated := t.TempDir()
	out, err := exec.Command(python, "-m", "grpc_tools.protoc", "-I", "../../api", "--python_out", generated, "hedged/v1/policy.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("peer is missing: %v: %s", err, out)
	}
	c := exec.Command(python, "python/client.py")
	c.Env = []string{"PYTHONPATH=" + generated}
	return c
}

// startDaemon starts a daemon that has one service, in shadow.
func startDaemon(t *testing.T) (addr string) {
	cfg := daemon.DefaultConfig()
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.StateDir = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	cfg.Services.Rules = []daemon.ServiceRule{{Pattern: "default/orders", Config: control.DefaultConfig()}}
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return d.GRPCAddr()
}

func off(t *testing.T, addr string) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = hedgedv1.NewAdminServiceClient(conn).SetOverride(t.Context(), &hedgedv1.SetOverrideRequest{
		Scope:    &hedgedv1.SetOverrideRequest_Service{Service: "orders"},
		Override: &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_OFF, Author: "test", Reason: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
}
