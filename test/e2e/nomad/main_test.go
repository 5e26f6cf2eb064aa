package nomad

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// Slow: each alert has a server of its own, and three wait until Nomad has been unavailable for long enough.

type object = map[string]any

func TestMain(m *testing.M) { bed.Main(m) }
