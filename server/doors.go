package server

import (
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/doors/mcp"
)

// openDoors returns the doors with these names, which config has checked.
func openDoors(names []string) []doors.Door {
	made := map[string]func() doors.Door{
		config.DoorPoseidon: nil, config.DoorJobe: nil, config.DoorMCP: func() doors.Door { return mcp.New() },
	}
	var all []doors.Door
	for _, name := range names {
		all = append(all, made[name]())
	}
	return all
}
