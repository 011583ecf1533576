package goals

import (
	"context"
	_ "embed"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/hedged-project/hedged/sim"
)

// oracleSeeds is how many runs an oracle's figures come from.
const oracleSeeds = 12

//go:embed oracle.txt
var oracleText string

// Oracle is the best that a fixed delay and probability can do in a world.
type Oracle struct {
	sim.Oracle
	P99, P999 time.Duration // pooled
	Extra     float64
}

// oracles are those of the table, by their world's name.
type oracles map[string]line

type line struct {
	Oracle
	world uint32 // checksum of its text
}

func checksum(s *sim.Scenario) uint32 { return crc32.ChecksumIEEE([]byte(s.Text)) }

// readOracles reads what WriteOracles writes.
func readOracles(text string) (oracles, error) {
	all := oracles{}
	for i, t := range strings.Split(text, "\n") {
		if t = strings.TrimSpace(t); t == "" || t[0] == '#' {
			continue
		}
		var name, delay, p99, p999 string
		var l line
		if _, err := fmt.Sscan(t, &name, &l.world, &delay, &l.Probability, &p99, &p999, &l.Extra); err != nil {
			return nil, fmt.Errorf("oracle.txt:%d: %w", i+1, err)
		}
		for _, d := range []struct {
			to   *time.Duration
			text string
		}{{&l.Delay, delay}, {&l.P99, p99}, {&l.P999, p999}} {
			var err error
			if *d.to, err = time.ParseDuration(d.text); err != nil {
				return nil, fmt.Errorf("oracle.txt:%d: %w", i+1, err)
			}
		}
		all[name] = l
	}
	return all, nil
}

// Oracle returns the oracle of a world of the full form: looked for there, and from
// the table in the quick form.
func (b *Bench) Oracle(s *sim.Scenario) (Oracle, error) {
	if b.Quick {
		l, ok := b.table[s.Name]
		if !ok || l.world != checksum(s) {
			return Oracle{}, fmt.Errorf("oracle.txt has no figures for world %q as it is now; write it anew with hedgectl simulate --goals --oracle", s.Name)
		}
		return l.Oracle, nil
	}
	return findOracle(b.ctx, b.pool, s, b.base)
}

func findOracle(ctx context.Context, pool *sim.Pool, s *sim.Scenario, base uint64) (Oracle, error) {
	found, err := sim.FindOracle(ctx, pool, s)
	if err != nil {
		return Oracle{}, err
	}
	rows, err := sim.Compare(ctx, pool, s, []sim.Policy{found.Policy()}, oracleSeeds, base, nil)
	if err != nil {
		return Oracle{}, err
	}
	return Oracle{
		Oracle: found,
		P99:    rows[0].Pooled(.99),
		P999:   rows[0].Pooled(.999),
		Extra:  Of(rows[0], (*sim.Result).Extra).Value,
	}, nil
}

// WriteOracles looks for the oracles of goals and returns the table's text; those of
// other goals stay as they are. progress, unless nil, is told of each world, with
// the share of them that is done.
func WriteOracles(ctx context.Context, goals []Goal, base uint64, progress func(what string, done float64)) (string, error) {
	table, err := readOracles(oracleText)
	if err != nil {
		return "", err
	}
	var worlds, asked []*sim.Scenario
	for _, g := range All() {
		if g.Oracles != nil {
			worlds = append(worlds, g.Oracles()...)
		}
	}
	for _, g := range goals {
		if g.Oracles != nil {
			asked = append(asked, g.Oracles()...)
		}
	}
	pool := sim.NewPool()
	for i, s := range asked {
		if progress != nil {
			progress(s.Name, float64(i)/float64(len(asked)))
		}
		o, err := findOracle(ctx, pool, s, base)
		if err != nil {
			return "", err
		}
		table[s.Name] = line{Oracle: o, world: checksum(s)}
	}
	var b strings.Builder
	b.WriteString("# The best fixed delay and probability by world, as `hedgectl simulate --goals --oracle` found them:\n" +
		"# world, checksum of its text, delay, probability, and then pooled p99, p99.9 and extra load\n")
	for _, s := range worlds {
		if l, ok := table[s.Name]; ok {
			fmt.Fprintf(&b, "%s %d %v %.4g %v %v %.5f\n", s.Name, l.world, l.Delay.Round(time.Microsecond), l.Probability,
				l.P99.Round(time.Microsecond), l.P999.Round(time.Microsecond), l.Extra)
		}
	}
	return b.String(), nil
}
