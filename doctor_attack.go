package main

import (
	"context"
	"os"

	"github.com/rockpool/rockpool/attack"
	"github.com/rockpool/rockpool/runtime"
)

// attackServer carries out attacks on a server of this process, which nobody
// else uses.
func attackServer(ctx context.Context, server *Server, tier runtime.Isolation, rows []attack.Attack, limits map[string]any, told func(attack.Result)) (attack.Report, error) {
	machine, err := newAttackMachine(server.config)
	if err != nil {
		return attack.Report{}, err
	}
	defer machine.close()
	if err := os.MkdirAll(server.config.Images.Files, 0o700); err != nil {
		return attack.Report{}, err
	}
	client := server.Client()
	defer client.CloseIdle()
	place := attack.Place{Server: client, Tier: tier, Outside: machine, Bait: machine.bait, Images: server.config.Images.Files, Limits: limits}
	return attack.Run(ctx, place, rows, told)
}
