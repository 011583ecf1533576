package demo

import (
	"encoding/json"
	"testing"
)

// A scene is one flat object, in the order in which it was measured.
func TestSceneAsJSON(t *testing.T) {
	s := Scene{Name: "kill-switch", Figures: []Figure{{"clients", 200}, {"last_stopped_ms", 28.5}}}
	got, err := json.Marshal(&Result{Scenes: []Scene{s}})
	want := `{"runs":null,"simulated":null,"scenes":[{"name":"kill-switch","clients":200,"last_stopped_ms":28.5}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
