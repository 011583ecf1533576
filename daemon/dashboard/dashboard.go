// Package dashboard is the page that people watch a daemon on: static files that
// ask the JSON API of the same address for everything they show. Read
// assets/app.js first.
//
// It has no build step. uPlot, which draws the charts, is in assets as its authors
// released it (version 1.6.32, MIT); assets_test.go knows its checksum.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

// file is one asset as it is served.
type file struct {
	plain, zipped []byte
	contentType   string
	etag          string
}

// Handler serves the page at / and its files beside it. It is safe for
// concurrent use.
func Handler() (http.Handler, error) {
	files := map[string]file{}
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		blob, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		f := file{plain: blob, contentType: mime.TypeByExtension(path.Ext(name))}
		sum := sha256.Sum256(blob)
		f.etag = `"` + hex.EncodeToString(sum[:8]) + `"`
		if f.zipped, err = zip(blob); err != nil {
			return err
		}
		files[strings.TrimPrefix(name, "assets/")] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
	}), nil
}

// policy allows what the page needs and nothing else: no inline script, no other
// site, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // asked for again each time, by its tag
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	blob := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		blob = f.zipped
	}
	_, _ = w.Write(blob) // an error is the reader's
}

func zip(blob []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(blob)
	}
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}
