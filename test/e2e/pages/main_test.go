// Package pages runs the code blocks of the documentation; package test/pages has the rules.
package pages

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
