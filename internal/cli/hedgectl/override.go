package hedgectl

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon"
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

func (o *options) set() *cobra.Command {
	var target float64
	cmd := o.override("set", hedgedv1.Mode_MODE_UNSPECIFIED, "Set the target, whatever the mode",
		`set replaces the configured target until it is released; the mode stays as configured.`, &target)
	cmd.Flags().Float64Var(&target, "target", 0, fmt.Sprintf("most extra load, as a `RATIO` of calls, %g to %g", control.MinTarget, control.MaxTarget))
	return cmd
}

func (o *options) release() *cobra.Command {
	return o.override("release", hedgedv1.Mode_MODE_UNSPECIFIED, "Take an override away",
		`release lets the configuration decide again.`)
}

// override returns the command that sets a mode; target is the flag of those that
// have one.
func (o *options) override(name string, mode hedgedv1.Mode, short, long string, target ...*float64) *cobra.Command {
	var all bool
	var reason string
	var lifetime time.Duration
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
			if name == "set" && !cmd.Flags().Changed("target") {
				return cli.Usagef("set: want what to set: --target")
			}
			if cmd.Flags().Changed("target") {
				if t := *target[0]; !(t >= control.MinTarget && t <= control.MaxTarget) {
					return cli.Usagef("--target: %g, want %g to %g", t, control.MinTarget, control.MaxTarget)
				}
				req.Override.Target = target[0]
			}
			if cmd.Flags().Changed("for") {
				if lifetime < daemon.MinLifetime || lifetime > daemon.MaxLifetime {
					return cli.Usagef("--for: %v, want %v to %v", lifetime, daemon.MinLifetime, daemon.MaxLifetime)
				}
				req.Override.Lifetime = durationpb.New(lifetime)
			}
			return o.setOverride(cmd.Context(), name, req)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every service, those that are still unknown included")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for whoever looks later")
	if name != "release" {
		cmd.Flags().DurationVar(&lifetime, "for", 0, "`TIME` after which it ends by itself, 1s to 720h; without, it holds until it is released")
	}
	return cmd
}

// setOverride sends a command and shows what came of it.
func (o *options) setOverride(ctx context.Context, name string, req *hedgedv1.SetOverrideRequest) error {
	return o.ask(ctx, func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
		r, err := admin.SetOverride(ctx, req)
		if err != nil {
			return err
		}
		if w := r.GetWarning(); w != "" {
			fmt.Fprintf(o.err, "hedgectl: warning: %s\n", w)
		}
		if !req.GetAll() {
			if err := o.warnUnused(ctx, admin, req.GetService()); err != nil {
				return err
			}
		}
		return o.print(r, func(w io.Writer) { writeOutcome(w, name, req, r) })
	})
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

func writeOutcome(w io.Writer, name string, req *hedgedv1.SetOverrideRequest, r *hedgedv1.SetOverrideResponse) {
	what := "every service"
	if !req.GetAll() {
		what = req.GetService()
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
