package daemon

import (
	"encoding/json"
	"net/http"
)

// handler serves what machines watch, and the page and the API that people do.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", guarded(d.page))
	mux.Handle("GET /{file}", guarded(d.page))
	mux.Handle("/api/", guarded(d.apiHandler()))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(d.metrics()) // an error is the scraper's
	})
	mux.HandleFunc("GET /healthz", d.serveHealth)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if d.running.Err() != nil {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}

// serveHealth answers 200 while the daemon does its work, failing storage
// included: clients go on, and a restart would not mend a disk. The body says it.
func (d *Daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	type health struct {
		Status       string `json:"status"` // ok or degraded
		StorageError string `json:"storage_error,omitempty"`
		// Every service is in shadow until an operator says what he wants.
		OverridesLost bool `json:"overrides_lost,omitempty"`
	}
	h := health{Status: "ok", OverridesLost: d.state.Doubtful()}
	if err := d.state.Err(); err != nil {
		h.StorageError = err.Error()
	}
	if h.OverridesLost || h.StorageError != "" {
		h.Status = "degraded"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h) // an error is the prober's
}
