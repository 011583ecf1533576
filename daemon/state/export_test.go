package state

import (
	"log/slog"
	"time"

	"github.com/hedged-project/hedged/storage"
)

// Block is how many numbers are reserved at once.
const Block = block

// OpenWith is Open with another store.
func OpenWith(dir string, logger *slog.Logger, now func() time.Time, open func(path string) (storage.Store, error)) (*State, error) {
	return openWith(dir, logger, now, open)
}
