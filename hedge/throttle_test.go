package hedge

import (
	"sync"
	"testing"

	"github.com/hedged-project/hedged/policy"
)

func tokensOf(t *Throttle) float64 { return float64(unpackThrottle(t.word.Load()).tokens) / 1000 }

func TestThrottle(t *testing.T) {
	var th Throttle
	th.Failure()
	if !th.Allow() {
		t.Error("no throttle configured: a hedge was refused")
	}
	th.Set(policy.Throttle{MaxTokens: 10, TokenRatio: .1})
	for range 4 {
		th.Failure()
	}
	if !th.Allow() {
		t.Error("6 of 10 tokens: refused")
	}
	th.Failure()
	if th.Allow() {
		t.Error("5 of 10 tokens: allowed, want only above half")
	}
	th.Success()
	if !th.Allow() {
		t.Error("5.1 of 10 tokens: refused")
	}
	for range 100 {
		th.Failure()
	}
	if got := tokensOf(&th); got != 0 {
		t.Errorf("%v tokens, want 0", got)
	}
	for range 1000 {
		th.Success()
	}
	if got := tokensOf(&th); got != 10 {
		t.Errorf("%v tokens, want 10", got)
	}
	th.Set(policy.Throttle{MaxTokens: 10, TokenRatio: .5466})
	th.Failure()
	th.Success()
	if got := tokensOf(&th); got != 9.546 {
		t.Errorf("%v tokens, want 9.546: decimals beyond the third do not count", got)
	}
}

// New parameters hold for the next decision while calls are in flight: the count
// is scaled, not refilled.
func TestThrottleLiveUpdate(t *testing.T) {
	var th Throttle
	th.Set(policy.Throttle{MaxTokens: 20, TokenRatio: .1})
	for range 12 {
		th.Failure()
	}
	th.Set(policy.Throttle{MaxTokens: 10, TokenRatio: 1})
	if got := tokensOf(&th); got != 4 || th.Allow() {
		t.Errorf("8 of 20 tokens, halved: %v tokens, allowed %v, want 4 of 10, refused", got, th.Allow())
	}
	th.Success()
	th.Success()
	if got := tokensOf(&th); got != 6 || !th.Allow() {
		t.Errorf("two successes at ratio 1: %v tokens, allowed %v, want 6, allowed", got, th.Allow())
	}
}

func TestThrottleConcurrent(t *testing.T) {
	var th Throttle
	th.Set(policy.Throttle{MaxTokens: 1000, TokenRatio: .5})
	for range 500 {
		th.Failure()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				th.Failure()
				th.Success()
				th.Success()
				th.Set(policy.Throttle{MaxTokens: 1000, TokenRatio: .5})
			}
		})
	}
	wg.Wait()
	if got := tokensOf(&th); got != 500 {
		t.Errorf("%v tokens, want 500", got)
	}
}

func BenchmarkThrottle(b *testing.B) {
	var th Throttle
	th.Set(policy.Throttle{MaxTokens: 1000, TokenRatio: .1})
	b.ReportAllocs()
	for b.Loop() {
		th.Failure()
		th.Success()
		th.Allow()
	}
}
