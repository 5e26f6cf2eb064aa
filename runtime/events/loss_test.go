package events

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestEachCauseHasWords(t *testing.T) {
	for _, cause := range runtime.LossCauses() {
		if reasons[cause] == "" {
			t.Error(cause)
		}
	}
}
