// SPDX-License-Identifier: Apache-2.0

// Command example runs the guide of an example of examples/ up to the line that names `make example`, prints each command before it runs it,
// and ends with what the reader can look at. Without a name it lists the examples.
//
// It decides nothing about an example: the commands and the text are the guide's. Its proof is the tests of liqo.io/liqo/test/guide, and
// test/examples, which runs the same commands.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"liqo.io/liqo/test/guide"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		list(os.Stdout)
		return nil
	}
	if len(args) != 1 {
		return fmt.Errorf("name one example: make example NAME=...; there are: %s", strings.Join(names(), " "))
	}
	text, err := guide.Read(".", args[0])
	if err != nil {
		return fmt.Errorf("%w; there are: %s", err, strings.Join(names(), " "))
	}
	before, rest, err := guide.Start(text, args[0])
	if err != nil {
		return err
	}
	commands := guide.Commands(before)
	if _, err := (guide.Shell{Folder: ".", Screen: os.Stdout}).Run(ctx, commands); err != nil {
		return fmt.Errorf("%w; to start again from nothing, also if other clusters are up: make down", err)
	}
	fmt.Print("\n==> It runs. To go on, in a shell of your own, in the root of the repository:\n\n")
	for _, command := range commands {
		if strings.HasPrefix(command.Line, "export ") || strings.HasPrefix(command.Line, "cd ") {
			fmt.Println(command.Line)
		}
	}
	fmt.Printf(
		"\n%s\n\nThe rest of the guide: examples/%s/README.md\nTake it down: make down\n",
		strings.TrimSpace(strings.NewReplacer("```sh\n", "", "```\n", "").Replace(rest)), args[0],
	)
	return nil
}

// list prints how to start each example, the first sentence of its guide, and where that is.
func list(screen io.Writer) {
	for _, name := range names() {
		text, _ := guide.Read(".", name)       // names has read it
		_, text, _ = strings.Cut(text, "\n\n") // the title
		sentence, _, _ := strings.Cut(text, "\n")
		fmt.Fprintf(screen, "make example NAME=%s\n    %s\n    examples/%s/README.md\n", name, sentence, name)
	}
}

// names are the examples that can be started.
func names() (all []string) {
	files, err := filepath.Glob("examples/*/README.md")
	if err != nil {
		return nil // the pattern is right
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if text, err := guide.Read(".", name); err == nil {
			if _, _, err := guide.Start(text, name); err == nil {
				all = append(all, name)
			}
		}
	}
	return all
}
