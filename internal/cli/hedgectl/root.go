// Package hedgectl is the operator's command line: it asks the daemon and shows
// the answer, as a table for people or as JSON for programs.
package hedgectl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/suggest"
)

// options are the flags that every command has.
type options struct {
	daemon  string
	output  string
	timeout time.Duration

	out io.Writer
	err io.Writer
}

// NewCommand returns the root command.
func NewCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &options{out: stdout, err: stderr}
	root := &cobra.Command{
		Use:   "hedgectl",
		Short: "See, steer and try hedged",
		Long: `hedgectl shows what the daemon sees and decides, and stops or starts hedging.

Exit codes: 0 done; 1 it could not be done; 2 the command was not understood.`,
		Example: `  hedgectl demo                    # see hedging work, on this machine, with nothing installed
  hedgectl status                  # every service, its delay and its extra load against the target
  hedgectl explain users           # why its policy is as it is
  hedgectl on users                # let the clients of one service hedge
  hedgectl off users               # stop hedging for one service, at once
  hedgectl off --all               # stop hedging everywhere`,
		Version: cli.Version(),
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	f := root.PersistentFlags()
	f.StringVar(&o.daemon, "daemon", envOr("HEDGED_DAEMON", "127.0.0.1:7946"), "`HOST:PORT` of the daemon's gRPC port; HEDGED_DAEMON sets it too")
	f.StringVarP(&o.output, "output", "o", "table", "`FORMAT` of the answer: table, json or yaml")
	f.DurationVar(&o.timeout, "timeout", 5*time.Second, "longest `TIME` to wait for the daemon, more than 0s")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		formats := []string{"table", "json", "yaml"}
		if cmd.Name() == "demo" || cmd.Name() == "simulate" { // they stream their results
			formats = formats[:2]
		}
		if !slices.Contains(formats, o.output) {
			return cli.Usagef("--output: %q, want %s", o.output, suggest.List(formats))
		}
		if o.timeout <= 0 {
			return cli.Usagef("--timeout: %v, want more than 0", o.timeout)
		}
		return nil
	}
	root.AddCommand(o.status(), o.watch(), o.clients(), o.replicas(), o.explain(), o.history(), o.policy(),
		o.off(), o.on(), o.shadow(), o.set(), o.release(), o.rollback(), o.demo(), o.simulate())
	root.AddCommand(children(stdout, stderr)...)
	return root
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// dial connects to the daemon; the connection is made by the first call.
func (o *options) dial() (*grpc.ClientConn, hedgedv1.AdminServiceClient, error) {
	host, port, err := net.SplitHostPort(o.daemon)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 || host == "" {
		return nil, nil, cli.Usagef("--daemon: %q, want HOST:PORT with a port of 1 to 65535", o.daemon)
	}
	conn, err := grpc.NewClient(o.daemon, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, cli.Usagef("--daemon: %q: %v", o.daemon, err)
	}
	return conn, hedgedv1.NewAdminServiceClient(conn), nil
}

// ask makes calls with a time limit and tells errors the operator's way.
func (o *options) ask(ctx context.Context, calls func(context.Context, hedgedv1.AdminServiceClient) error) error {
	conn, admin, err := o.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return o.told(calls(ctx, admin))
}

// told turns a status into a sentence that says what to do.
func (o *options) told(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("the daemon at %s does not answer: %s\nIs it running? Start it with 'hedged', or name the address of its gRPC port with --daemon", o.daemon, plain(st.Message()))
	case codes.DeadlineExceeded:
		return fmt.Errorf("the daemon at %s did not answer within %v\nIs that its gRPC port? 'hedged' prints it when it is ready", o.daemon, o.timeout)
	case codes.Canceled:
		return err // by an interrupt
	case codes.InvalidArgument:
		return &cli.UsageError{Err: fmt.Errorf("%s", st.Message())}
	default:
		return fmt.Errorf("%s", st.Message())
	}
}

// plain takes gRPC's own words off a connection error.
func plain(message string) string {
	_, cause, found := strings.Cut(message, `desc = "transport: `)
	if !found {
		return message
	}
	return strings.TrimSuffix(strings.TrimPrefix(cause, "Error while dialing: "), `"`)
}

// print shows m as JSON or YAML where that was asked for, else as table shows it.
func (o *options) print(m proto.Message, table func(w io.Writer)) error {
	if o.output == "table" {
		table(o.out)
		return nil
	}
	return o.json(m)
}

// json writes one document: JSON, or the same as YAML.
func (o *options) json(m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("format answer: %w", err)
	}
	return o.document(b)
}

// document writes JSON as it is, or as YAML.
func (o *options) document(blob []byte) error {
	if o.output == "yaml" {
		var tree any
		err := yaml.Unmarshal(blob, &tree) // JSON is YAML
		if err == nil {
			blob, err = yaml.Marshal(tree)
		}
		if err != nil {
			return fmt.Errorf("format answer: %w", err)
		}
		blob = append([]byte("---\n"), blob...) // of several, as watch prints
	}
	_, err := fmt.Fprintf(o.out, "%s\n", bytes.TrimRight(blob, "\n"))
	return err
}
