package hedgectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/policy"
)

func (o *options) history() *cobra.Command {
	limit := 50
	cmd := &cobra.Command{
		Use:   "history [SERVICE]",
		Short: "Tell what operators commanded and what was decided",
		Long: `history shows, newest first, who commanded what and why, and each change of
policy with its reason. The daemon keeps the latest 200 commands, and the latest
100 changes of each service, over restarts.`,
		Example: `  hedgectl history
  hedgectl history users --limit 10`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > daemon.MaxHistory {
				return cli.Usagef("--limit: %d, want 1 to %d", limit, daemon.MaxHistory)
			}
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.GetHistory(ctx, &hedgedv1.GetHistoryRequest{Service: first(args), Limit: uint32(limit)})
				if err != nil {
					return err
				}
				return o.print(r, func(w io.Writer) { writeHistory(w, r.GetEntries()) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, fmt.Sprintf("most entries to show, 1 to %d", daemon.MaxHistory))
	return cmd
}

func writeHistory(w io.Writer, entries []*hedgedv1.HistoryEntry) {
	if len(entries) == 0 {
		fmt.Fprintln(w, "Nothing yet: no command was given and no policy changed.")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHEN\tSERVICE\tWHO\tWHAT\tWHY")
	for _, e := range entries {
		who, what, why := "hedged", "", ""
		if o := e.GetOverride(); o != nil {
			who, what, why = cmp.Or(o.GetAuthor(), "an operator"), commanded(o), o.GetReason()
		}
		if c := e.GetChange(); c != nil {
			what, why = "mode "+modeName(c.GetMode()), c.GetReason()
			if c.GetMethod() != "" {
				what = c.GetMethod() + ": " + delay(c.GetDelayBefore()) + " to " + delay(c.GetDelayAfter())
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", e.GetAt().AsTime().Local().Format(time.DateTime), cmp.Or(e.GetService(), "all"), who, what, why)
	}
	t.Flush()
}

func (o *options) rollback() *cobra.Command {
	var all bool
	var reason string
	cmd := &cobra.Command{
		Use:   "rollback SERVICE | --all",
		Short: "Take the latest command back",
		Long: `rollback puts the command in force that stood before the latest one about the
service, or about all with --all; where there was none, the configuration. It
concerns commands only: what hedged learned from measurements is never edited.`,
		Example: "  hedgectl rollback users",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) || len(args) > 1 {
				return cli.Usagef("rollback: want a SERVICE, or --all; got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var before *hedgedv1.Override
			err := o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.GetHistory(ctx, &hedgedv1.GetHistoryRequest{Service: first(args), Limit: daemon.MaxHistory})
				if err == nil {
					before, err = beforeLatest(r.GetEntries(), first(args))
				}
				return err
			})
			if err != nil {
				return err
			}
			req := &hedgedv1.SetOverrideRequest{
				Scope:    &hedgedv1.SetOverrideRequest_All{All: true},
				Override: &hedgedv1.Override{Mode: before.GetMode(), Target: before.Target, Author: author(), Reason: reason},
			}
			if !all {
				req.Scope = &hedgedv1.SetOverrideRequest_Service{Service: args[0]}
			}
			if end := before.GetExpiresAt(); end != nil {
				req.Override.Lifetime = durationpb.New(time.Until(end.AsTime()))
			}
			return o.setOverride(cmd.Context(), "back to "+commanded(before), req)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "the latest command about every service")
	cmd.Flags().StringVar(&reason, "reason", "rollback", "`WHY`, for whoever looks later")
	return cmd
}

// beforeLatest returns the command that stood before the latest one of the scope:
// service, or all for an empty one. One that is over meanwhile counts as released.
func beforeLatest(entries []*hedgedv1.HistoryEntry, service string) (*hedgedv1.Override, error) {
	scope := ""
	if service != "" {
		key, err := policy.ParseKey(service)
		if err != nil {
			return nil, err
		}
		scope = key.String()
	}
	entries = slices.DeleteFunc(entries, func(e *hedgedv1.HistoryEntry) bool {
		return e.GetOverride() == nil || e.GetService() != scope
	})
	switch {
	case len(entries) == 0:
		return nil, fmt.Errorf("there is no command about %s to take back", cmp.Or(service, "all services"))
	case len(entries) == 1:
		return &hedgedv1.Override{}, nil
	}
	before := entries[1].GetOverride()
	if end := before.GetExpiresAt(); end != nil && time.Until(end.AsTime()) < daemon.MinLifetime {
		return &hedgedv1.Override{}, nil
	}
	return before, nil
}
