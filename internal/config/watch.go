package config

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// lookEvery is how often a file is looked at. Its content is compared, because
// what replaces a file (a link, a mount) may keep its times.
const lookEvery = 2 * time.Second

// Watch calls changed, one call at a time, after the content of the file at path
// became another, until ctx ends. While the file cannot be read it counts as
// unchanged: whoever replaces it may remove it first.
func Watch(ctx context.Context, path string, changed func()) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	last, _ := digest(path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if now, ok := digest(path); ok && now != last {
				last = now
				changed()
			}
		}
	}
}

func digest(path string) (sum [sha256.Size]byte, ok bool) {
	blob, err := os.ReadFile(path)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(blob), true
}
