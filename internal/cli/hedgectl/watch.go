package hedgectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli"
)

func (o *options) watch() *cobra.Command {
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "watch [SERVICE]",
		Short: "Show services as they change, until interrupted",
		Long: `watch shows what status shows of services, again and again: in place on a
terminal, one table or JSON document after the other elsewhere.`,
		Example: `  hedgectl watch
  hedgectl watch users --interval 250ms
  hedgectl watch -o json | jq .services[].load.extra_load`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond || interval > time.Minute {
				return cli.Usagef("--interval: %v, want 100ms to 1m", interval)
			}
			conn, admin, err := o.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			err = o.follow(cmd.Context(), admin, first(args), interval)
			if cmd.Context().Err() != nil {
				return nil // interrupted, as it is meant to end
			}
			return o.told(err)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "`TIME` between two looks, 100ms to 1m")
	return cmd
}

func (o *options) follow(ctx context.Context, admin hedgedv1.AdminServiceClient, service string, interval time.Duration) error {
	stream, err := admin.WatchServices(ctx, &hedgedv1.WatchServicesRequest{Service: service, MinInterval: durationpb.New(interval)})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "it ended the stream")
		}
		if err != nil {
			return err
		}
		err = o.print(r, func(w io.Writer) {
			var b bytes.Buffer
			fmt.Fprintf(&b, "%s\n\n", time.Now().Format(time.TimeOnly))
			writeServices(&b, r.GetServices())
			fmt.Fprintln(&b)
			if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				b = inPlace(b)
			}
			_, _ = b.WriteTo(w) // to a reader that is gone the next look fails too
		})
		if err != nil {
			return err
		}
	}
}

// inPlace writes over what is on a terminal, line by line, so that nothing flickers.
func inPlace(text bytes.Buffer) (b bytes.Buffer) {
	b.WriteString("\x1b[H")
	for line := range bytes.Lines(text.Bytes()) {
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b
}
