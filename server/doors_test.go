package server

import (
	"testing"

	"github.com/rockpool/rockpool/config"
)

func TestEachDoorOfTheSettingsOpens(t *testing.T) {
	for _, cluster := range []string{config.ClusterLocal, config.ClusterNomad} {
		open := openDoors(config.AllDoors(), cluster)
		if len(open) != len(config.AllDoors()) {
			t.Fatalf("%d doors", len(open))
		}
		for i, name := range config.AllDoors() {
			if open[i].Name() != name {
				t.Errorf("%s is the door %s", name, open[i].Name())
			}
		}
	}
}
