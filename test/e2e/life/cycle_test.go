package life

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// cycle is a short form of all that a client does with a runner: it claims, uploads, runs, follows,
// cancels while the program runs, and releases.
func cycle(ctx context.Context, b bed.Bed, i int) error {
	runner, err := client.Claim(ctx, b, client.ClaimRunnerInput{EnvironmentId: "endurance", WaitFor: new(120)})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("cycle %d\n", i)
	if i/2%2 == 0 {
		_, err = client.UpdateFiles(ctx, b, client.UpdateFilesInput{RunnerId: runner, Write: []client.FileInput{{Path: "file", Text: &text}}})
	} else { // as a multipart request
		err = b.Client.UploadFile(ctx, runner, "file", "", false, -1, strings.NewReader(text))
	}
	if err != nil {
		return err
	}
	execution, err := client.Start(ctx, b, client.StartExecutionInput{RunnerId: runner, Shell: new("cat file; sleep 100 & exec sleep 100"), Stdin: new(true)})
	if err != nil {
		return err
	}
	watching, leave := context.WithCancel(ctx)
	defer leave()
	printed := ""
	err = b.Follow(watching, execution, nil, func(e client.Event) error {
		if printed += string(e.Base64); printed == text && i%2 == 0 {
			leave()
		} else if printed == text {
			go func() { _ = client.Cancel(ctx, b, execution) }() // while this follows it to the end
		}
		return nil
	})
	if err != nil && watching.Err() == nil || printed != text {
		return fmt.Errorf("printed %q: %w", printed, errors.Join(err, errors.New("not all was seen")))
	}
	if err := client.Cancel(ctx, b, execution); err != nil {
		return err
	}
	return client.Release(ctx, b, runner)
}
