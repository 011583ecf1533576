package hedgectl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli"
)

func (o *options) clients() *cobra.Command {
	return &cobra.Command{
		Use:   "clients [SERVICE]",
		Short: "Show who holds which policy",
		Long: `clients shows of every client and service the generation in force there, whether it
is the current one or why it was refused, and when the client reported last.`,
		Example: "  hedgectl clients\n  hedgectl clients users",
		Args:    cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				st, err := admin.GetStatus(ctx, &hedgedv1.GetStatusRequest{})
				if err != nil {
					return err
				}
				r, err := admin.ListClients(ctx, &hedgedv1.ListClientsRequest{Service: first(args)})
				if err != nil {
					return err
				}
				return o.print(r, func(w io.Writer) {
					if len(r.GetClients()) == 0 {
						fmt.Fprintln(w, "No clients yet: they appear with their first stream.")
						return
					}
					writeClients(w, r.GetClients(), st.GetEpoch())
				})
			})
		},
	}
}

func (o *options) replicas() *cobra.Command {
	return &cobra.Command{
		Use:     "replicas SERVICE",
		Short:   "Show replicas with their latency and standing",
		Example: "  hedgectl replicas users",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.ListServices(ctx, &hedgedv1.ListServicesRequest{Service: args[0]})
				if err != nil {
					return err
				}
				return o.print(r, func(w io.Writer) {
					if len(r.GetServices()[0].GetReplicas()) == 0 {
						fmt.Fprintln(w, "No replicas yet: they appear with the first report of a client.")
						return
					}
					writeReplicas(w, r.GetServices())
				})
			})
		},
	}
}

func (o *options) policy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Print policies for other programs",
		Args:  cli.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	format := "service-config"
	get := &cobra.Command{
		Use:   "get SERVICE",
		Short: "Print a service's policy, as a gRPC service config or as it is on the wire",
		Long: `get prints the policy in force. As a gRPC service config (gRFC A6) it serves clients
that hedge by themselves, such as gRPC's for Java, Node and .NET: without the
budget, which a service config cannot say, so that nothing bounds what they
spend but the delay; and it ages, since nothing updates it.`,
		Example: "  hedgectl policy get users\n  hedgectl policy get users --format policy",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "service-config" && format != "policy" {
				return cli.Usagef("--format: %q, want service-config or policy", format)
			}
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.ListServices(ctx, &hedgedv1.ListServicesRequest{Service: args[0]})
				if err != nil {
					return err
				}
				p := r.GetServices()[0].GetPolicy()
				if format == "policy" {
					return o.json(p)
				}
				return writeServiceConfig(o.out, p)
			})
		},
	}
	get.Flags().StringVar(&format, "format", format, "`FORMAT`: service-config or policy")
	cmd.AddCommand(get)
	return cmd
}
