package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestIdleRunnersGiveWayToWhatClaimsLack(t *testing.T) {
	size := func(mhz, mib int) runtime.Resources { return runtime.Resources{CPUMHz: mhz, MemoryMiB: mib} }
	type others = map[string]givers // by name
	old, recent := time.Unix(1, 0), time.Unix(2, 0)
	for name, test := range map[string]struct {
		lacks  []runtime.Resources
		others others
		want   string // which give way, in order
	}{
		"100 MiB missing: two runners yield":                  {[]runtime.Resources{size(0, 100)}, others{"a": {idle: 4, size: size(100, 64)}}, "a a"},
		"several pools: the least recently used yields first": {[]runtime.Resources{size(0, 100)}, others{"a": {idle: 2, size: size(1, 64), lastUse: recent}, "b": {idle: 1, size: size(1, 64), lastUse: old}}, "b a"},
		"no pool has enough: none yields":                     {[]runtime.Resources{size(0, 300)}, others{"a": {idle: 4, size: size(100, 64)}}, ""},
		"no pool has enough CPU: none yields":                 {[]runtime.Resources{size(500, 64)}, others{"a": {idle: 4, size: size(100, 64)}}, ""},
		"only CPU missing: two runners yield":                 {[]runtime.Resources{size(150, 0)}, others{"a": {idle: 4, size: size(100, 64)}}, "a a"},
		"pool without CPU: another one yields":                {[]runtime.Resources{size(150, 0)}, others{"a": {idle: 2, size: size(0, 64), lastUse: old}, "b": {idle: 4, size: size(100, 64), lastUse: recent}}, "b b"},
		"rest of a runner: serves the next claim":             {[]runtime.Resources{size(0, 100), size(0, 28)}, others{"a": {idle: 4, size: size(0, 64)}}, "a a"},
		"too large claim: only the other one is served":       {[]runtime.Resources{size(0, 1000), size(0, 64)}, others{"a": {idle: 4, size: size(0, 64)}}, "a"},
		"pool that refuses: another one yields":               {[]runtime.Resources{size(0, 100)}, others{"a": {idle: 4, size: size(0, 64), lastUse: recent}, "refuses": {idle: 4, size: size(0, 64), lastUse: old}}, "a a"},
		"pool that fails: none yields":                        {[]runtime.Resources{size(0, 64)}, others{"fails": {idle: 4, size: size(0, 64)}}, ""},
		"nothing missing: none yields":                        {nil, others{"a": {idle: 4, size: size(0, 64)}}, ""},
	} {
		var gave []string
		var all []givers
		for name, of := range test.others {
			of.yield = func(context.Context) (bool, error) {
				switch name {
				case "refuses":
					return false, nil
				case "fails":
					return false, errors.New("it is gone")
				}
				gave = append(gave, name)
				return true, nil
			}
			all = append(all, of)
		}
		yieldTo(t.Context(), test.lacks, all)
		if got := strings.Join(gave, " "); got != test.want {
			t.Errorf("%s: %q gave way, want %q", name, got, test.want)
		}
	}
}
