package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

const (
	maxBody   = 64 << 10 // bytes of a request
	pushEvery = time.Second
)

// jsonForm is the one that hedgectl -o json prints too.
var jsonForm = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}

// apiHandler serves AdminService as JSON, for dashboards and curl.
func (d *Daemon) apiHandler() http.Handler {
	a := &admin{d: d}
	mux := http.NewServeMux()
	get := func(path string, call func(*http.Request) (proto.Message, error)) {
		mux.HandleFunc("GET /api/v1/"+path, func(w http.ResponseWriter, r *http.Request) { answer(w, r, call) })
	}
	get("status", func(r *http.Request) (proto.Message, error) {
		return a.GetStatus(r.Context(), &hedgedv1.GetStatusRequest{})
	})
	get("services", func(r *http.Request) (proto.Message, error) {
		return a.ListServices(r.Context(), &hedgedv1.ListServicesRequest{Service: r.FormValue("service")})
	})
	get("clients", func(r *http.Request) (proto.Message, error) {
		return a.ListClients(r.Context(), &hedgedv1.ListClientsRequest{Service: r.FormValue("service")})
	})
	get("explain", func(r *http.Request) (proto.Message, error) {
		return a.Explain(r.Context(), &hedgedv1.ExplainRequest{Service: r.FormValue("service"), Method: r.FormValue("method")})
	})
	get("history", func(r *http.Request) (proto.Message, error) {
		limit, err := parseLimit(r.FormValue("limit"))
		if err != nil {
			return nil, err
		}
		return a.GetHistory(r.Context(), &hedgedv1.GetHistoryRequest{Service: r.FormValue("service"), Limit: limit})
	})
	get("series", func(r *http.Request) (proto.Message, error) {
		return a.GetSeries(r.Context(), &hedgedv1.GetSeriesRequest{Service: r.FormValue("service")})
	})
	mux.HandleFunc("GET /api/v1/watch", d.serveWatch)
	mux.HandleFunc("POST /api/v1/override", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(r *http.Request) (proto.Message, error) {
			var req hedgedv1.SetOverrideRequest
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
			if err == nil {
				err = protojson.Unmarshal(body, &req)
			}
			if err != nil {
				return nil, status.Errorf(codes.InvalidArgument, "body: %v", err)
			}
			return a.SetOverride(r.Context(), &req)
		})
	})
	return mux
}

func parseLimit(text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "limit: %.40q, want 1 to %d", text, MaxHistory)
	}
	return uint32(n), nil
}

// answer writes what a call returns as JSON; an error as {"error": TEXT} under the
// HTTP status of its code.
func answer(w http.ResponseWriter, r *http.Request, call func(*http.Request) (proto.Message, error)) {
	m, err := call(r)
	var blob []byte
	if err == nil {
		blob, err = jsonForm.Marshal(m)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(httpStatus(status.Code(err)))
		blob = fmt.Appendf(nil, `{"error": %s}`, strconv.QuoteToASCII(status.Convert(err).Message()))
	}
	_, _ = w.Write(blob) // an error is the reader's
}

func httpStatus(c codes.Code) int {
	switch c {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.NotFound:
		return http.StatusNotFound
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// serveWatch sends the services as server-sent events: at once, then each second.
func (d *Daemon) serveWatch(w http.ResponseWriter, r *http.Request) {
	a := &admin{d: d}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(pushEvery)
	defer ticker.Stop()
	for {
		services, err := a.services(r.FormValue("service"))
		var st *hedgedv1.GetStatusResponse
		if err == nil {
			st, err = a.GetStatus(r.Context(), &hedgedv1.GetStatusRequest{})
		}
		if err == nil {
			err = event(w, "status", st)
		}
		if err == nil {
			err = event(w, "services", &hedgedv1.ListServicesResponse{Services: services})
		}
		if err == nil {
			// A reader that does not take an event in for so long is gone.
			err = errors.Join(out.Flush(), out.SetWriteDeadline(time.Now().Add(10*pushEvery)))
		}
		if err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-d.running.Done():
			return
		case <-ticker.C:
		}
	}
}

func event(w io.Writer, name string, m proto.Message) error {
	blob, err := jsonForm.Marshal(m) // one line
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, blob)
	return err
}

// guarded keeps other sites' pages out: by the Host that a request names, since a
// page may have its own name resolve to loopback, and by where a request that
// changes something comes from.
func guarded(h http.Handler) http.Handler {
	h = http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(host) {
			http.Error(w, fmt.Sprintf("host: %.80q is not this daemon, want localhost or a loopback address", r.Host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
