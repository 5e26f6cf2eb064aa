package life

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

type object = map[string]any

func TestMain(m *testing.M) { bed.Main(m) }
