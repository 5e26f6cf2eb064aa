package doctor

import (
	"context"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/store/database"
	"github.com/rockpool/rockpool/server"
)

// examineNomad checks the Nomad cluster of the settings without changing it.
func examineNomad(ctx context.Context, settings config.Config, report func(...health.Finding)) {
	found, err := server.ExamineNomad(ctx, settings)
	if err != nil {
		report(health.Failure("settings", "see docs/config.example.yaml", "%v", err))
		return
	}
	report(found...)
	if settings.Database == "" {
		return
	}
	if version, err := database.Examine(ctx, settings.Database); err != nil {
		report(health.Failure("database", "see docs/guides/nomad.md, \"Several servers\"", "%v", err))
	} else {
		report(health.Fine("database", "PostgreSQL %s", version))
	}
}
