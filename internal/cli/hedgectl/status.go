package hedgectl

import (
	"context"
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
				if o.output == "json" {
					return all.json(o.out)
				}
				all.table(o.out)
				return nil
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

// json writes one document with the three answers.
func (v overview) json(w io.Writer) error {
	m := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	daemon, err := m.Marshal(v.daemon)
	if err != nil {
		return err
	}
	services, err := m.Marshal(v.services)
	if err != nil {
		return err
	}
	clients, err := m.Marshal(v.clients)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `{"daemon":%s,"services":%s,"clients":%s}`+"\n",
		daemon, inner(services, "services"), inner(clients, "clients"))
	return err
}

// inner returns the list that is the only field of an object.
func inner(object []byte, field string) []byte {
	s := strings.TrimSpace(string(object))
	_, list, _ := strings.Cut(s, `"`+field+`":`)
	return []byte(strings.TrimSuffix(strings.TrimSpace(list), "}"))
}

func (v overview) table(w io.Writer) {
	if e := v.daemon.GetStorageError(); e != "" {
		fmt.Fprintf(w, "STORAGE FAILS: %s\n\n", e)
	}
	if all := v.daemon.GetAllOverride(); all != nil {
		fmt.Fprintf(w, "ALL SERVICES: %s, said %s%s\n\n", modeName(all.GetMode()), by(all.GetAuthor()), because(all.GetReason()))
	}
	if len(v.services.GetServices()) == 0 {
		fmt.Fprintln(w, "No services yet: they appear with the first report of a client.")
		return
	}
	writeServices(w, v.services.GetServices())
	writeClients(w, v.clients.GetClients())
}

func writeServices(w io.Writer, services []*hedgedv1.ServiceStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tMODE\tEXTRA LOAD\tTARGET\tELIGIBLE\tCALLS\tCLIENTS\tREPLICAS\tWHY")
	for _, s := range services {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.GetName(), modeName(s.GetPolicy().GetMode()),
			percent(s.GetLoad().ExtraLoad), percent(&s.Target), percent(s.GetLoad().EligibleRate),
			s.GetLoad().GetCalls(), s.GetClients(), replicaSummary(s.GetReplicas()), s.GetPolicy().GetReason().GetText())
	}
	t.Flush()

	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "METHOD\tDELAY\tEXTRA LOAD\tELIGIBLE\tCALLS\tWINS\tP50\tP99\tP99.9\tSERVICE")
	for _, s := range services {
		for _, m := range s.GetMethods() {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", m.GetMethod(), delay(m.GetPolicy().GetDelay()),
				percent(m.GetLoad().ExtraLoad), percent(m.GetLoad().EligibleRate), m.GetLoad().GetCalls(), m.GetLoad().GetWins(),
				latency(m.GetP50()), latency(m.GetP99()), latency(m.GetP999()), s.GetName())
		}
	}
	t.Flush()
	writeReplicas(w, services)
}

// writeReplicas shows the replicas of one service, and of several only those
// that are not in normal service.
func writeReplicas(w io.Writer, services []*hedgedv1.ServiceStatus) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := false
	for _, s := range services {
		for _, r := range s.GetReplicas() {
			serving := r.GetPolicy().GetState() == hedgedv1.ReplicaState_REPLICA_STATE_SERVING
			if serving && len(services) > 1 {
				continue
			}
			if !header {
				fmt.Fprintln(w)
				fmt.Fprintln(t, "REPLICA\tSTATE\tSHARE\tSAMPLES\tP50\tP95\tSERVICE\tWHY")
				header = true
			}
			share := r.GetPolicy().GetShare()
			if serving {
				share = 1
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.GetReplica(), stateName(r.GetPolicy().GetState()),
				percent(&share), r.GetSamples(), latency(r.GetP50()), latency(r.GetP95()), s.GetName(), r.GetPolicy().GetReason())
		}
	}
	t.Flush()
}

func writeClients(w io.Writer, clients []*hedgedv1.ClientStatus) {
	if len(clients) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tSERVICE\tGENERATION\tPOLICY\tLAST REPORT\tVERSION")
	for _, c := range clients {
		for _, s := range c.GetSubscriptions() {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.GetId(), s.GetService(), generation(s.GetGeneration()),
				subscription(c, s), age(c.GetReportAge()), c.GetVersion())
		}
	}
	t.Flush()
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

func generation(g *hedgedv1.Generation) string {
	if g == nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d", g.GetEpoch(), g.GetNumber())
}

func age(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f s ago", d.AsDuration().Seconds())
}

func by(author string) string {
	if author == "" {
		return "by nobody named"
	}
	return "by " + author
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
