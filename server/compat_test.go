package server

import (
	"testing"

	"github.com/rockpool/rockpool/config"
)

func TestEachCompatibleAPIOfTheSettingsIsServed(t *testing.T) {
	for _, cluster := range []string{config.ClusterLocal, config.ClusterNomad} {
		open := compatAPIs(config.AllCompat(), cluster)
		if len(open) != len(config.AllCompat()) {
			t.Fatalf("%d APIs", len(open))
		}
		for i, name := range config.AllCompat() {
			if open[i].Name() != name {
				t.Errorf("%s is the API %s", name, open[i].Name())
			}
		}
	}
}
