package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hedged-project/hedged/policy"
)

// Overrides are stored twice in the same bytes: as a record of the store and as
// a file of their own. One line of JSON, then one with its CRC-32C: JSON with a
// flipped bit is often JSON still.
const (
	overridesFormat = 1
	sumPrefix       = "crc32c "
	maxOverrides    = 100_000
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type overridesDoc struct {
	Format    int           `json:"format"`
	Serial    uint64        `json:"serial"`
	Overrides []overrideDoc `json:"overrides"`
	Past      []overrideDoc `json:"past,omitempty"`
}

type overrideDoc struct {
	Service string  `json:"service,omitempty"` // tenant/service; empty: all
	Mode    string  `json:"mode,omitempty"`    // empty: as configured
	Target  float64 `json:"target,omitempty"`
	Cleared bool    `json:"cleared,omitempty"`
	Author  string  `json:"author,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	SetAt   int64   `json:"set_at_unix_ms"`
	Until   int64   `json:"until_unix_ms,omitempty"`
	Serial  uint64  `json:"serial"`
	Doubt   bool    `json:"doubt,omitempty"`
}

func (c commands) encode() ([]byte, error) {
	doc := overridesDoc{Format: overridesFormat, Serial: c.serial, Overrides: []overrideDoc{}}
	for _, o := range c.list() {
		doc.Overrides = append(doc.Overrides, o.doc())
	}
	for _, o := range c.past {
		doc.Past = append(doc.Past, o.doc())
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return sealed(b), nil
}

func (o Override) doc() overrideDoc {
	d := overrideDoc{
		Target: o.Target, Cleared: o.Cleared, Author: o.Author, Reason: o.Reason,
		SetAt: o.SetAt.UnixMilli(), Serial: o.Serial, Doubt: o.Doubt,
	}
	if !o.All() {
		d.Service = o.Key.String()
	}
	if o.HasMode {
		d.Mode = o.Mode.String()
	}
	if !o.Until.IsZero() {
		d.Until = o.Until.UnixMilli()
	}
	return d
}

func sealed(line []byte) []byte {
	return fmt.Appendf(bytes.Clone(line), "\n%s%08x\n", sumPrefix, crc32.Checksum(line, castagnoli))
}

func decodeCommands(b []byte) (commands, error) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	if want := sealed(line); !bytes.Equal(b, want) {
		return commands{}, fmt.Errorf("overrides: checksum line is %.40q, want %q", rest, want[len(line)+1:])
	}
	var doc overridesDoc
	if err := json.Unmarshal(line, &doc); err != nil {
		return commands{}, fmt.Errorf("overrides: %w", err)
	}
	if doc.Format != overridesFormat || len(doc.Overrides) > maxOverrides {
		return commands{}, fmt.Errorf("overrides: format %d with %d entries, want format %d with at most %d",
			doc.Format, len(doc.Overrides), overridesFormat, maxOverrides)
	}
	c := commands{own: map[policy.Key]Override{}}
	for i, d := range doc.Overrides {
		o, err := d.override()
		if err == nil && (o.Serial <= c.serial || o.Serial > doc.Serial) {
			err = fmt.Errorf("serial: %d, want more than %d and at most %d", o.Serial, c.serial, doc.Serial)
		}
		if err != nil {
			return commands{}, fmt.Errorf("overrides[%d]: %w", i, err)
		}
		c = c.with(o)
	}
	if len(doc.Past) > maxPast {
		return commands{}, fmt.Errorf("overrides: past has %d entries, want at most %d", len(doc.Past), maxPast)
	}
	for i, d := range doc.Past {
		o, err := d.override()
		if err == nil && o.Serial > doc.Serial {
			err = fmt.Errorf("serial: %d, want at most %d", o.Serial, doc.Serial)
		}
		if err != nil {
			return commands{}, fmt.Errorf("past[%d]: %w", i, err)
		}
		c.past = remember(c.past, o)
	}
	c.serial = doc.Serial
	return c, nil
}

func (d overrideDoc) override() (Override, error) {
	o := Override{
		Target: d.Target, Cleared: d.Cleared, Author: d.Author, Reason: d.Reason,
		SetAt: time.UnixMilli(d.SetAt).UTC(), Serial: d.Serial, Doubt: d.Doubt,
	}
	if d.Until != 0 {
		o.Until = time.UnixMilli(d.Until).UTC()
	}
	if d.Mode != "" {
		if o.Mode, o.HasMode = policy.ParseMode(d.Mode); !o.HasMode {
			return Override{}, fmt.Errorf("mode: %.40q is unknown", d.Mode)
		}
	}
	if d.Service != "" {
		var err error
		if o.Key, err = policy.ParseKey(d.Service); err != nil {
			return Override{}, err
		}
	}
	return o, o.Validate()
}

const policyPrefix = "policy/"

func policyRecord(key policy.Key) string { return policyPrefix + key.String() }

func policyKey(record string) (policy.Key, error) {
	return policy.ParseKey(strings.TrimPrefix(record, policyPrefix))
}

// writeFile replaces the file at path by b so that it holds either the old
// bytes or the new ones whatever happens, and the new ones once it returned nil.
// The temporary name is fixed, so that crashes leave no litter: one process
// writes here, the one that has the store's lock.
func writeFile(path string, b []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
