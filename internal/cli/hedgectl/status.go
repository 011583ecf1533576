package hedgectl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli"
)

func (o *options) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [SERVICE]",
		Short: "Show services, methods, replicas and clients",
		Long: `status shows every service (or one): its mode, its measured extra load against
the target, the delay of each method, replicas out of normal service, and the
generation of the policy that each client runs.`,
		Example: `  hedgectl status
  hedgectl status users
  hedgectl status -o json`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				all, err := gather(ctx, admin, first(args))
				if err != nil {
					return err
				}
				if o.output == "table" {
					all.table(o.out)
					return nil
				}
				blob, err := all.json()
				if err != nil {
					return err
				}
				return o.document(blob)
			})
		},
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// overview is what status shows: the daemon, its services and their clients.
type overview struct {
	daemon   *hedgedv1.GetStatusResponse
	services *hedgedv1.ListServicesResponse
	clients  *hedgedv1.ListClientsResponse
}

func gather(ctx context.Context, admin hedgedv1.AdminServiceClient, service string) (v overview, err error) {
	if v.daemon, err = admin.GetStatus(ctx, &hedgedv1.GetStatusRequest{}); err != nil {
		return v, err
	}
	if v.services, err = admin.ListServices(ctx, &hedgedv1.ListServicesRequest{Service: service}); err != nil {
		return v, err
	}
	v.clients, err = admin.ListClients(ctx, &hedgedv1.ListClientsRequest{Service: service})
	return v, err
}

// json returns one document with the three answers.
func (v overview) json() ([]byte, error) {
	m := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	document := struct {
		Daemon   json.RawMessage   `json:"daemon"`
		Services []json.RawMessage `json:"services"`
		Clients  []json.RawMessage `json:"clients"`
	}{Services: []json.RawMessage{}, Clients: []json.RawMessage{}}
	var err error
	if document.Daemon, err = m.Marshal(v.daemon); err != nil {
		return nil, err
	}
	for _, s := range v.services.GetServices() {
		b, err := m.Marshal(s)
		if err != nil {
			return nil, err
		}
		document.Services = append(document.Services, b)
	}
	for _, c := range v.clients.GetClients() {
		b, err := m.Marshal(c)
		if err != nil {
			return nil, err
		}
		document.Clients = append(document.Clients, b)
	}
	return json.Marshal(document)
}

func (v overview) table(w io.Writer) {
	fmt.Fprintf(w, "hedged %s, up since %s, state in %s, epoch %d\n", v.daemon.GetVersion(),
		v.daemon.GetStartedAt().AsTime().Local().Format(time.DateTime), v.daemon.GetStateDir(), v.daemon.GetEpoch())
	if e := v.daemon.GetStorageError(); e != "" {
		fmt.Fprintf(w, "STORAGE FAILS, going on from memory: %s\n", e)
	}
	if e := v.daemon.GetConfigError(); e != "" {
		fmt.Fprintf(w, "CONFIGURATION REFUSED, that of %s stays in force: %s\n",
			v.daemon.GetConfigLoadedAt().AsTime().Local().Format(time.DateTime), e)
	}
	if all := v.daemon.GetAllOverride(); all != nil {
		fmt.Fprintf(w, "ALL SERVICES: %s\n", said(all))
	}
	fmt.Fprintln(w)
	writeServices(w, v.services.GetServices())
	writeClients(w, v.clients.GetClients(), v.daemon.GetEpoch())
}

func writeServices(w io.Writer, services []*hedgedv1.ServiceStatus) {
	if len(services) == 0 {
		fmt.Fprintln(w, "No services yet: they appear with the first report of a client.")
		return
	}
	fmt.Fprintf(w, "Calls and rates of the last %v; latencies as they are without hedging.\n\n", services[0].GetLoad().GetWindow().AsDuration())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tMODE\tEXTRA LOAD\tTARGET\tELIGIBLE\tCALLS\tCLIENTS\tREPLICAS\tWHY")
	for _, s := range services {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.GetName(), modeName(s.GetPolicy().GetMode()),
			percent(s.GetLoad().ExtraLoad), percent(&s.Target), percent(s.GetLoad().EligibleRate),
			s.GetLoad().GetCalls(), s.GetClients(), replicaSummary(s.GetReplicas()), why(s))
	}
	t.Flush()
	writeMethods(w, services)
	writeReplicas(w, services)
}

func writeMethods(w io.Writer, services []*hedgedv1.ServiceStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := rows{w: w, t: t, header: "SERVICE\tMETHOD\tDELAY\tEXTRA LOAD\tELIGIBLE\tCALLS\tWINS\tP50\tP99\tP99.9\tHEDGED P99.9\tRESCUED"}
	for _, s := range services {
		for _, m := range s.GetMethods() {
			c := m.GetCounterfactual()
			rows.add("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s", s.GetName(), m.GetMethod(), delay(m.GetPolicy().GetDelay()),
				percent(m.GetLoad().ExtraLoad), percent(m.GetLoad().EligibleRate), m.GetLoad().GetCalls(), m.GetLoad().GetWins(),
				latency(m.GetP50()), latency(unhedged(m.GetP99(), c.GetP99())), latency(unhedged(m.GetP999(), c.GetP999())),
				latency(c.GetHedgedP999()), rescued(c))
		}
	}
	t.Flush()
}

// unhedged prefers what was measured on calls that chance chose to what follows
// from the lengths of cancelled attempts, were copies independent.
func unhedged(estimated *durationpb.Duration, chosen *hedgedv1.QuantileInterval) *durationpb.Duration {
	if chosen != nil {
		return chosen.GetValue()
	}
	return estimated
}

// rescued is the share of slow calls that hedges make quicker, and its error.
func rescued(c *hedgedv1.Counterfactual) string {
	if c == nil || c.Efficacy == nil {
		return "-"
	}
	return fmt.Sprintf("%s +- %.2g", percent(c.Efficacy), 100*c.GetEfficacyOff())
}

// writeReplicas shows the replicas of one service, and of several only those
// that are not in normal service.
func writeReplicas(w io.Writer, services []*hedgedv1.ServiceStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := rows{w: w, t: t, header: "SERVICE\tREPLICA\tSTATE\tSHARE\tSAMPLES\tP50\tP95\tWHY"}
	for _, s := range services {
		for _, r := range s.GetReplicas() {
			serving := r.GetPolicy().GetState() == hedgedv1.ReplicaState_REPLICA_STATE_SERVING
			if serving && len(services) > 1 {
				continue
			}
			share := r.GetPolicy().GetShare()
			if serving {
				share = 1
			}
			rows.add("%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", s.GetName(), r.GetReplica(), stateName(r.GetPolicy().GetState()),
				percent(&share), r.GetSamples(), latency(r.GetP50()), latency(r.GetP95()), r.GetPolicy().GetReason())
		}
	}
	t.Flush()
}

func writeClients(w io.Writer, clients []*hedgedv1.ClientStatus, epoch uint64) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := rows{w: w, t: t, header: "SERVICE\tCLIENT\tGENERATION\tPOLICY\tLAST REPORT\tVERSION"}
	for _, c := range clients {
		for _, s := range c.GetSubscriptions() {
			rows.add("%s\t%s\t%s\t%s\t%s\t%s", s.GetService(), c.GetId(), generation(s.GetGeneration(), epoch),
				subscription(c, s), age(c.GetReportAge()), c.GetVersion())
		}
	}
	t.Flush()
}

// rows is a table that shows nothing, its header included, while it has no row.
type rows struct {
	w      io.Writer
	t      *tabwriter.Writer // on w
	header string
	begun  bool
}

func (r *rows) add(format string, values ...any) {
	if !r.begun {
		r.begun = true
		fmt.Fprintf(r.w, "\n")
		fmt.Fprintln(r.t, r.header)
	}
	fmt.Fprintf(r.t, format+"\n", values...)
}

// why tells an operator's own words where an operator spoke.
func why(s *hedgedv1.ServiceStatus) string {
	if o := s.GetOverride(); o != nil {
		return said(o)
	}
	return s.GetPolicy().GetReason().GetText()
}

func said(o *hedgedv1.Override) string {
	text := commanded(o)
	if o.GetAuthor() != "" {
		text += ", said " + o.GetAuthor()
	} else {
		text += ", said an operator"
	}
	if o.GetSetAt() != nil {
		text += " at " + o.GetSetAt().AsTime().Local().Format(time.DateTime)
	}
	if o.GetReason() != "" {
		text += ": " + o.GetReason()
	}
	return text
}

// commanded is what an override says, in the words of the command.
func commanded(o *hedgedv1.Override) string {
	text := modeName(o.GetMode())
	switch {
	case o.GetMode() == hedgedv1.Mode_MODE_UNSPECIFIED && o.Target == nil:
		return "released"
	case o.GetMode() == hedgedv1.Mode_MODE_UNSPECIFIED:
		text = "target " + percent(o.Target)
	case o.Target != nil:
		text += " at " + percent(o.Target)
	}
	if o.GetExpiresAt() != nil {
		text += " until " + o.GetExpiresAt().AsTime().Local().Format(time.DateTime)
	}
	return text
}

func subscription(c *hedgedv1.ClientStatus, s *hedgedv1.Subscription) string {
	switch {
	case s.GetNackReason() != "":
		return "refused: " + s.GetNackReason()
	case !c.GetStreaming():
		return "gone"
	case s.GetCurrent():
		return "current"
	default:
		return "behind"
	}
}

func replicaSummary(replicas []*hedgedv1.ReplicaStatus) string {
	out := 0
	for _, r := range replicas {
		if r.GetPolicy().GetState() != hedgedv1.ReplicaState_REPLICA_STATE_SERVING {
			out++
		}
	}
	if out == 0 {
		return fmt.Sprint(len(replicas))
	}
	return fmt.Sprintf("%d, %d out", len(replicas), out)
}

func modeName(m hedgedv1.Mode) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_"))
}

func stateName(s hedgedv1.ReplicaState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "REPLICA_STATE_"))
}

func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100**x)
}

func delay(d *durationpb.Duration) string {
	if d.AsDuration() == 0 {
		return "none"
	}
	return latency(d)
}

func latency(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return millis(d.AsDuration())
}

func millis(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.3f ms", ms)
	}
}

// generation leaves out an epoch that is the known one.
func generation(g *hedgedv1.Generation, known uint64) string {
	switch {
	case g == nil:
		return "-"
	case g.GetEpoch() == known:
		return fmt.Sprint(g.GetNumber())
	}
	return fmt.Sprintf("%d.%d", g.GetEpoch(), g.GetNumber())
}

func age(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f s ago", d.AsDuration().Seconds())
}
