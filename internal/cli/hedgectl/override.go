package hedgectl

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/policy"
)

func (o *options) off() *cobra.Command {
	return o.override("off", hedgedv1.Mode_MODE_OFF, "Stop hedging, at once",
		`off is the kill switch: clients stop at once, calls under way included. Nothing
is measured either; use shadow to go on measuring.`)
}

func (o *options) shadow() *cobra.Command {
	return o.override("shadow", hedgedv1.Mode_MODE_SHADOW, "Measure and decide, but send no hedge",
		`shadow makes clients measure and report what they would hedge, and send nothing.`)
}

func (o *options) on() *cobra.Command {
	var target float64
	cmd := o.override("on", hedgedv1.Mode_MODE_ACTIVE, "Hedge within the budget",
		`on lets clients hedge. A service that nobody switched on is in shadow.`, &target)
	cmd.Flags().Float64Var(&target, "target", 0, fmt.Sprintf("most extra load, as a `RATIO` of calls, %g to %g (default as configured)", control.MinTarget, control.MaxTarget))
	return cmd
}

// override returns the command that sets a mode; target is on's flag.
func (o *options) override(name string, mode hedgedv1.Mode, short, long string, target ...*float64) *cobra.Command {
	var all bool
	var reason string
	cmd := &cobra.Command{
		Use:   name + " SERVICE | --all",
		Short: short,
		Long: long + `

The last command wins: 'off --all' stops services that were switched on before,
and 'on SERVICE' starts that one again. Saying the same again is no error.`,
		Example: fmt.Sprintf("  hedgectl %s users\n  hedgectl %s --all --reason 'incident 42'", name, name),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return cli.Usagef("%s: %q is given beside --all, want one of them", name, args[0])
			case !all && len(args) != 1:
				return cli.Usagef("%s: want a SERVICE, or --all; got %d arguments", name, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &hedgedv1.SetOverrideRequest{
				Scope:    &hedgedv1.SetOverrideRequest_All{All: true},
				Override: &hedgedv1.Override{Mode: mode, Author: author(), Reason: reason},
			}
			if !all {
				req.Scope = &hedgedv1.SetOverrideRequest_Service{Service: args[0]}
			}
			if cmd.Flags().Changed("target") {
				if t := *target[0]; !(t >= control.MinTarget && t <= control.MaxTarget) {
					return cli.Usagef("--target: %g, want %g to %g", t, control.MinTarget, control.MaxTarget)
				}
				req.Override.Target = target[0]
			}
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.SetOverride(ctx, req)
				if err != nil {
					return err
				}
				if w := r.GetWarning(); w != "" {
					fmt.Fprintf(o.err, "hedgectl: warning: %s\n", w)
				}
				if !all {
					if err := o.warnUnused(ctx, admin, args[0]); err != nil {
						return err
					}
				}
				return o.print(r, func(w io.Writer) { writeOutcome(w, name, all, args, r) })
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every service, those that are still unknown included")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for whoever looks later")
	return cmd
}

// warnUnused says so where nobody uses the service: a kill switch with a typo in
// its name stops nothing.
func (o *options) warnUnused(ctx context.Context, admin hedgedv1.AdminServiceClient, service string) error {
	r, err := admin.ListServices(ctx, &hedgedv1.ListServicesRequest{})
	if err != nil {
		return err
	}
	var used []string
	for _, s := range r.GetServices() {
		if s.GetClients() > 0 {
			used = append(used, s.GetName())
		}
	}
	if key, err := policy.ParseKey(service); err == nil && slices.Contains(used, key.String()) {
		return nil
	}
	fmt.Fprintf(o.err, "hedgectl: warning: no client has reported service %q lately; in use: %s\n", service, some(used))
	return nil
}

// some lists names, but not hundreds of them.
func some(names []string) string {
	const shown = 10
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	default:
		return strings.Join(names, ", ")
	}
}

func writeOutcome(w io.Writer, name string, all bool, args []string, r *hedgedv1.SetOverrideResponse) {
	what := "every service"
	if !all {
		what = args[0]
	}
	if len(r.GetChanged()) == 0 {
		fmt.Fprintf(w, "%s: %s; no policy changed\n", what, name)
		return
	}
	fmt.Fprintf(w, "%s: %s; changed %s\n", what, name, some(r.GetChanged()))
}

func author() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
