package sim

import (
	"fmt"
	"time"
)

// maxMoreMethods is how many methods a service may have beside the first.
const maxMoreMethods = 9

// methodShare is a method beside the first: a share of the calls, and how much
// longer they take.
type methodShare struct{ share, factor float64 }

// methodOf is the method of a call that drew u from [0, 1).
func (s *Scenario) methodOf(u float64) int32 {
	for i := range s.methods {
		if u -= s.methods[i].share; u < 0 {
			return int32(i + 1)
		}
	}
	return 0
}

// methodNames are what clients call the methods.
func (s *Scenario) methodNames() []string {
	names := []string{"/sim.World/Call"}
	for i := range s.methods {
		names = append(names, fmt.Sprintf("/sim.World/Call%d", i+2))
	}
	return names
}

// zones are where clients and replicas are, and how much longer the way between
// two zones is than within one.
type zones struct {
	share float64 // of the clients, in the first
	far   time.Duration
}

func (z *zones) first(slot int32) bool { return among(z.share, slot) }
func (z *zones) name(slot int32) string {
	switch {
	case z.far == 0:
		return ""
	case z.first(slot):
		return "first"
	}
	return "second"
}
func (z *zones) firstReplica(replica int32) bool { return replica%2 == 0 }

// among reports whether the client in a slot is one of a share of all, which are
// spread evenly.
func among(share float64, slot int32) bool {
	return int((float64(slot)+1)*share+1e-9) > int(float64(slot)*share+1e-9)
}
