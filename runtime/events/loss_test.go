package events

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestEveryLossCauseHasAMessage(t *testing.T) {
	for _, cause := range runtime.LossCauses() {
		if reasons[cause] == "" {
			t.Error(cause)
		}
	}
}
