package doctor

import (
	"context"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/runtime/store/database"
	"github.com/rockpool/rockpool/server"
)

// examineNomad checks the Nomad cluster of the settings without changing it.
func examineNomad(ctx context.Context, settings config.Config, report func(...finding.Finding)) {
	found, err := server.ExamineNomad(ctx, settings)
	if err != nil {
		report(finding.Failure("settings", "see docs/config.example.yaml", "%v", err))
		return
	}
	report(found...)
	if settings.Database == "" {
		return
	}
	if version, err := database.Examine(ctx, settings.Database); err != nil {
		report(finding.Failure("database", "see docs/guides/nomad.md, \"Several servers\"", "%v", err))
	} else {
		report(finding.Fine("database", "PostgreSQL %s", version))
	}
}
