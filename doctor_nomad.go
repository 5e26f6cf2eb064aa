package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/nomad"
)

// examineNomad looks at the Nomad that the settings name, and changes nothing
// there.
func examineNomad(ctx context.Context, config Config, tell func(...finding)) {
	files, err := embedded.NewFiles()
	if err != nil {
		tell(bad("parts", "build the server with make build", "%v", err))
		return
	}
	found, err := nomad.Examine(ctx, config.nomadConfig("", files.ArchiveSum(config.Nomad.Arch), zap.NewNop()))
	if err != nil {
		tell(bad("settings", "see docs/config.example.yaml", "%v", nomadSetting(err)))
		return
	}
	for _, f := range found {
		switch {
		case f.Fails:
			tell(bad(f.Name, f.Advice, "%s", f.Message))
		case f.Advice != "":
			tell(warn(f.Name, f.Advice, "%s", f.Message))
		default:
			tell(fine(f.Name, "%s", f.Message))
		}
	}
}
