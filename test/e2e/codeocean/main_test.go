package codeocean

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
