package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// What others wrote is what they released.
func TestThirdPartyIsAsReleased(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	} {
		blob, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(blob)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has checksum %s, want %s", name, got, want)
		}
	}
}

// The page asks nobody else for anything, has no script or style in its own text,
// and everything that it names is there.
func TestPageIsComplete(t *testing.T) {
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, header http.Header) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		req.Header = header
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec
	}
	entries, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, e := range entries {
		zipped := get("/"+e.Name(), http.Header{"Accept-Encoding": {"gzip"}})
		if zipped.Code != 200 || zipped.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d, encoding %q", e.Name(), zipped.Code, zipped.Header().Get("Content-Encoding"))
		}
		total += zipped.Body.Len()
		if again := get("/"+e.Name(), http.Header{"If-None-Match": {zipped.Header().Get("ETag")}}); again.Code != http.StatusNotModified {
			t.Errorf("%s asked for again: %d, want 304", e.Name(), again.Code)
		}
	}
	if most := 150 << 10; total > most {
		t.Errorf("everything together is %d bytes compressed, want at most %d", total, most)
	}
	named := regexp.MustCompile(`(?:src|href|from) ?=? ?"(?:\./)?([\w.-]+\.(?:js|css|svg))"`)
	elsewhere := regexp.MustCompile(`https?://[^"' ]+`)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "uPlot") {
			continue
		}
		text := get("/"+e.Name(), nil).Body.String()
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if get("/"+m[1], nil).Code != 200 {
				t.Errorf("%s names %s, which is not there", e.Name(), m[1])
			}
		}
		for _, url := range elsewhere.FindAllString(text, -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", e.Name(), url)
			}
		}
		if strings.HasSuffix(e.Name(), ".html") && regexp.MustCompile(`<style|<script>|\son\w+=|style=`).MatchString(text) {
			t.Errorf("%s has a script or style inline, which the page's policy forbids", e.Name())
		}
	}
	if rec := get("/nothing", nil); rec.Code != http.StatusNotFound {
		t.Errorf("a file that is not there: %d, want 404", rec.Code)
	}
}
