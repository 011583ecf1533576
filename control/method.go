package control

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

const (
	latencySub = 500 * time.Millisecond
	// Where calls are crowded, it takes more of them to know as much.
	crowdedMemory = 4 * memory

	// A method that is silent for so long is forgotten.
	forgetMethod = 10 * time.Minute
	// Methods tracked; calls of others count for the service and get no estimate.
	maxMethods = 200
)

// method is what is known of one method.
type method struct {
	name     string
	counts   ring
	latency  *estimator.Window // of primaries, all replicas together
	lastSeen time.Time

	delay      time.Duration     // the estimate in force; 0: none
	since      policy.Generation // the first that carries delay; zero: none yet
	correction float64           // as of the last change of delay or of the latency
	measured   float64           // the same, of now
	basis      basis             // of delay
	search     search
	failing    bool
	freeze     freeze
	shared     shared
	voices     voices
	buys       counterfactual
	hedging    bool // as of the last decision, mode and budget aside

	// Above the shortest delay that was in force while the latencies in memory
	// were measured they are censored; changes are sought below it.
	uncensored      time.Duration
	uncensoredUntil time.Time

	restored *policy.Method // served until there is data; nil: none
}

func newMethod(name string) *method {
	return &method{
		name:       name,
		latency:    estimator.NewWindow(latencySub, int(crowdedMemory/latencySub)),
		correction: 1,
		measured:   1,
		voices:     voices{},
	}
}

// setting is what a method's decision depends on besides its own measurements.
type setting struct {
	cfg      Config
	target   float64
	run      float64       // calls of a client in Window
	crowding float64       // of the service
	memory   time.Duration // of latencies
	serving  int           // replicas seen in normal service
	grace    bool          // a restored policy still holds without data
	fallback policy.Method
}

// decide returns the method's policy and the guards that were asked, the last
// of which decided.
func (m *method) decide(now time.Time, in setting) (policy.Method, []Guard) {
	m.latency.Keep(int(in.memory / latencySub))
	m.latency.Advance(now)
	window := m.counts.sum(now, windowSubs)
	kept := m.counts.sum(now, memorySubs)
	wanted := wantedRate(in.target, in.run)
	out := policy.Method{
		Probability: 1,
		MaxAttempts: in.cfg.MaxAttempts,
		NonFatal:    in.cfg.NonFatal,
	}
	guards := make([]Guard, 0, 4)
	ask := func(code policy.ReasonCode, decided bool, text string) bool {
		guards = append(guards, Guard{Code: code, Method: m.name, Decided: decided, Text: text})
		if decided {
			out.Reason = policy.Reason{Code: code, Text: text}
		}
		return decided
	}

	need := samplesNeeded(wanted)
	if m.delay > 0 && m.restored == nil {
		need /= 2 // a rate of calls about the bound must not make the policy flap
	}
	if kept.ended < need {
		text := fmt.Sprintf("%s calls ended in %v, an estimate needs %s", commas(kept.ended), memory, commas(need))
		if m.restored != nil && in.grace {
			ask(m.restored.Reason.Code, true, text+": the delay from before the restart holds")
			held := *m.restored
			held.MaxAttempts, held.NonFatal, held.Reason = out.MaxAttempts, out.NonFatal, out.Reason
			return held, guards
		}
		m.restored = nil
		m.set(now, 0)
		m.freeze.forget()
		m.buys.forget()
		m.search = search{}
		m.hedging = false
		out = in.fallback
		ask(policy.ReasonNoData, true, text+fallbackText(in.fallback.Delay))
		return out, guards
	}
	m.restored = nil

	if m.latency.DropChanged(m.limit(now), in.crowding) > 0 {
		m.uncensoredUntil = time.Time{}
		m.forgetForced()
		m.buys.forget()
		kept.forcedSafe, kept.forcedEligible = 0, 0
		m.basis.calls = min(m.basis.calls, m.latency.Total().Count())
	}
	frozen, freezeText := m.freeze.decide(now)
	if m.freeze.lately(now) { // what was counted calls for no other delay, what ends may
		m.counts.forgetForced()
		kept.forcedSafe, kept.forcedEligible = 0, 0
	}
	sample := m.latency.Total()
	wasShared := m.shared.late > 0
	isShared, sharedText := m.shared.decide(now, sharedInput{
		inForce:  m.delay,
		max:      in.cfg.MaxDelay,
		sample:   sample,
		recent:   m.freeze.all(),
		target:   in.target,
		crowding: in.crowding,
	})
	if isShared != wasShared { // other calls are hedged now, at another delay
		m.buys.forget()
	}
	before := m.search.probability()
	share := m.search.decide(now, searchInput{
		sample:     sample,
		wanted:     wanted,
		correction: m.measured,
		objective:  in.cfg.Objective,
		min:        in.cfg.MinDelay,
		max:        in.cfg.MaxDelay,
		rescues:    m.buys.rescues,
	})
	if share != before {
		m.buys.rechosen()
	}
	wanted /= share
	next := delayOutput{delay: m.shared.late, correction: m.correction}
	if isShared && m.delay != m.shared.late { // counts at another delay tell nothing
		m.freeze.forget()
	}
	if !isShared {
		next = nextDelay(delayInput{
			inForce:    m.delay,
			sample:     sample,
			wanted:     wanted,
			safe:       kept.forcedSafe,
			eligible:   kept.forcedEligible,
			correction: m.correction,
			crowding:   in.crowding,
			renew:      !m.freeze.lately(now) && m.basis.renew(now, sample.Count(), wanted, in.crowding),
			min:        in.cfg.MinDelay,
			max:        in.cfg.MaxDelay,
		})
	}
	m.measured = next.correction
	if next.delay == 0 {
		out = in.fallback
		ask(policy.ReasonNoData, true, next.note+fallbackText(in.fallback.Delay))
		return out, guards
	}
	if frozen && float64(next.delay) > shiftedBy*float64(m.delay) {
		m.freeze.forget()
		frozen = false
	}
	m.set(now, next.delay)
	out.Delay = m.delay
	ask(policy.ReasonNoData, false, fmt.Sprintf("%s calls ended in %v", commas(kept.ended), memory))

	failing, text := isFailing(m.failing, window.calls, window.failures, failureBound(in.cfg.Throttle))
	m.failing = failing
	few := fmt.Sprintf("%d replicas in normal service, hedging needs %d", in.serving, minServing)
	if ask(policy.ReasonTooFewReplicas, in.serving < minServing, few) || ask(policy.ReasonFailing, failing, text) || ask(policy.ReasonFreeze, frozen, freezeText) {
		out.Probability = 0
		m.hedging = false
		return out, guards
	}
	out.Observe, out.Holdout = observe(in.target, in.crowding), m.buys.holdout(in.target)
	m.hedging = true
	if ask(policy.ReasonShared, isShared, sharedText) {
		out.Probability, out.MaxAttempts = m.shared.share, 2
		return out, guards
	}
	out.Probability = share
	ask(policy.ReasonTracking, true, m.trackingText(sample, window, next, in))
	return out, guards
}

func fallbackText(d time.Duration) string {
	if d == 0 {
		return ": no hedge"
	}
	return ": the default delay of " + millis(d) + " holds"
}

func (m *method) trackingText(sample *estimator.Sample, window tally, next delayOutput, in setting) string {
	text := fmt.Sprintf("the delay of %s stands for p%s of %s calls in %v",
		millis(m.delay), number(100*next.quantile), commas(sample.Count()), in.memory)
	load := window.load()
	if extra, ok := load.ExtraLoad(); ok {
		rate, _ := load.EligibleRate()
		text += fmt.Sprintf("; in %v %s outlived it, extra load %s of %s", Window, percent(rate), percent(extra), percent(in.target))
	}
	if m.search.text != "" {
		text += "; " + m.search.text
	}
	if next.note != "" {
		text += "; " + next.note
	}
	return text
}

// limit is the latency below which nothing in memory is censored by a hedge; 0: none is.
func (m *method) limit(now time.Time) time.Duration {
	if now.After(m.uncensoredUntil) {
		return m.delay
	}
	return m.uncensored
}

// set puts a delay in force. What was counted at the one before says nothing of it.
func (m *method) set(now time.Time, d time.Duration) {
	if d == m.delay {
		return
	}
	before := m.limit(now)
	m.uncensored = d
	if before > 0 {
		m.uncensored = min(before, d)
	}
	m.uncensoredUntil = now.Add(memory)
	m.delay, m.since = d, policy.Generation{}
	m.forgetForced()
}

func (m *method) forgetForced() {
	m.correction = m.measured
	m.counts.forgetForced()
}

func (m *method) status(now time.Time, p policy.Method) MethodStatus {
	m.latency.Advance(now)
	window := m.counts.sum(now, windowSubs)
	total := m.latency.Total()
	return MethodStatus{
		Name:   m.name,
		Policy: p,
		Load:   window.load(),
		P50:    quantile(total, .5),
		P95:    quantile(total, .95),
		P99:    quantile(total, .99),
		P999:   quantile(total, .999),

		Counterfactual: m.buys.status(now, total),
	}
}

func quantile(s *estimator.Sample, q float64) Quantile {
	v, ok := s.Quantile(q)
	return Quantile{Value: v, OK: ok}
}
