// SPDX-License-Identifier: Apache-2.0

// Package guide reads the commands of the README of an example, types them into one shell as a reader does, and compares what they
// print with what a test expects.
//
// It knows Markdown and a shell, and nothing of clusters. Its proof is guide_test.go, and the tests that follow the guides of examples/.
package guide

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Command is one line that a README asks its reader to type.
type Command struct {
	Line  string
	Fails bool // the remark after the command announces it with the word "fails"
}

// Parse separates a command from the remark after it.
func Parse(line string) Command {
	command, remark, _ := strings.Cut(line, "   #")
	return Command{strings.TrimSpace(command), strings.HasPrefix(strings.TrimSpace(remark), "fails")}
}

// Commands returns the commands of the sh blocks of a text, one for each line.
func Commands(text string) (all []Command) {
	for i, part := range strings.Split(text, "```") {
		block, is := strings.CutPrefix(part, "sh\n")
		if i%2 == 0 || !is {
			continue
		}
		for line := range strings.Lines(block) {
			if command := Parse(line); command.Line != "" {
				all = append(all, command)
			}
		}
	}
	return all
}

// Read returns the text of the README of an example, which is a folder below examples.
func Read(root, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "examples", name, "README.md"))
	return string(text), err
}

// Start returns what `make example` runs of a README, which is everything before the line that names this command, and the rest of that section,
// which describes what the reader can look at then.
func Start(text, name string) (before, rest string, err error) {
	mark := "\n`make example NAME=" + name + "` "
	before, after, found := strings.Cut(text, mark)
	if !found {
		return "", "", fmt.Errorf("the guide of %s has no line that starts with %q, where its commands stop", name, strings.TrimSpace(mark))
	}
	_, rest, _ = strings.Cut(after, "\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	return before, rest, nil
}

// Output is a command and what it printed on both of its streams.
type Output struct {
	Command Command
	Text    string
	Took    time.Duration
}

// Transcript is what a reader saw on the screen.
func Transcript(outputs []Output) string {
	var text strings.Builder
	for _, one := range outputs {
		fmt.Fprintf(&text, "$ %s\n%s\n", one.Command.Line, one.Text)
	}
	return text.String()
}

// Shell is where commands are typed.
type Shell struct {
	Folder string
	Env    []string     // on top of the environment
	Screen io.Writer    // shows each command, and what it prints at once; may be nil
	Ended  func(Output) // is called after each command; may be nil
}

// Run types commands into one shell. It stops at the first that fails, or that succeeds although the guide announces that it fails.
func (s Shell) Run(ctx context.Context, commands []Command) (all []Output, err error) {
	shell := exec.CommandContext(ctx, "bash", "-c", script(commands))
	shell.Dir = s.Folder
	shell.Env = append(append(os.Environ(), "MAKEFLAGS=--no-print-directory"), s.Env...)
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	shell.Stdout, shell.Stderr = write, write
	err = shell.Start()
	_ = write.Close() // the shell has its own
	if err != nil {
		return nil, err
	}
	screen := s.Screen
	if screen == nil {
		screen = io.Discard
	}
	start := time.Now()
	ended := func() {
		if len(all) > 0 {
			last := &all[len(all)-1]
			last.Took = time.Since(start)
			if s.Ended != nil {
				s.Ended(*last)
			}
		}
		start = time.Now()
	}
	for lines := bufio.NewScanner(read); lines.Scan(); {
		// The last line of an output may lack its end.
		line, last := strings.CutSuffix(lines.Text(), next)
		if len(all) > 0 && (line != "" || !last) {
			all[len(all)-1].Text += line + "\n"
			fmt.Fprintln(screen, line)
		}
		if last {
			ended()
			all = append(all, Output{Command: commands[len(all)]})
			fmt.Fprintf(screen, "\n$ %s\n", all[len(all)-1].Command.Line)
		}
	}
	ended()
	if err := shell.Wait(); err != nil {
		return all, fmt.Errorf("command %d of the guide, %q: %w", len(all), commands[max(len(all)-1, 0)].Line, err)
	}
	return all, nil
}

// next is printed before each command.
const next = "==next=="

func script(commands []Command) string {
	text := "set -e\n"
	for _, command := range commands {
		line := command.Line
		if command.Fails {
			line = "if " + line + "\nthen echo 'it succeeded, and the guide announces that it fails'; exit 1; fi"
		}
		text += "echo " + next + "\n" + line + "\n"
	}
	return text
}

// Want is what a command of a guide must print, as regular expressions.
type Want struct {
	Command string
	Match   []string
	Not     []string
}

// Check compares outputs with what a test expects. The commands of the expectations must be among those of the outputs, in the same order.
func Check(outputs []Output, wants []Want) error {
	var wrong []error
	for _, want := range wants {
		for len(outputs) > 0 && outputs[0].Command.Line != want.Command {
			outputs = outputs[1:]
		}
		if len(outputs) == 0 {
			return errors.Join(append(wrong, fmt.Errorf("the guide has no command %q here", want.Command))...)
		}
		for _, expression := range want.Match {
			if !regexp.MustCompile(expression).MatchString(outputs[0].Text) {
				wrong = append(wrong, fmt.Errorf("%s: want %q in\n%s", want.Command, expression, outputs[0].Text))
			}
		}
		for _, expression := range want.Not {
			if regexp.MustCompile(expression).MatchString(outputs[0].Text) {
				wrong = append(wrong, fmt.Errorf("%s: want no %q in\n%s", want.Command, expression, outputs[0].Text))
			}
		}
		outputs = outputs[1:]
	}
	return errors.Join(wrong...)
}
