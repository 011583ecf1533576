package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// handler serves what machines watch.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer // so that a slow scraper holds nothing
		d.writeMetrics(&b)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(b.Bytes())
	})
	mux.HandleFunc("GET /healthz", d.serveHealth)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if d.running.Err() != nil {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ready\n"))
	})
	return mux
}

// serveHealth answers 200 while the daemon does its work, failing storage
// included: clients go on, and a restart would not mend a disk. The body says it.
func (d *Daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	type health struct {
		Status       string `json:"status"` // ok or degraded
		StorageError string `json:"storage_error,omitempty"`
	}
	h := health{Status: "ok"}
	if err := d.state.Err(); err != nil {
		h = health{Status: "degraded", StorageError: err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(h)
}
