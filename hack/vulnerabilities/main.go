// SPDX-License-Identifier: Apache-2.0

// Command vulnerabilities compares what the linker put into our programs with a database of known vulnerabilities: Go modules and Go's own library.
//
// It runs govulncheck on the programs and fails for each vulnerability whose function is linked in, unless hack/vulnerabilities.txt accepts it
// with a reason. The database is a file of the user: it asks no server, so that a run depends on nothing outside this machine. It must not know
// which programs there are. Its proof is main_test.go, with a database that names a module of the test program itself.
package main

import (
	"archive/zip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

const (
	acceptedFile = "hack/vulnerabilities.txt"
	// maxEntry bounds what one file of an archive may become; the largest entry of the public database has 200 kB.
	maxEntry = 64 << 20
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	database := flag.String("db", "", "database in the OSV format: a directory, or the file vulndb.zip of the Go project")
	flag.Parse()
	accepted, err := os.ReadFile(acceptedFile)
	if err == nil {
		err = scan(ctx, *database, string(accepted), flag.Args(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulnerabilities:", err)
		os.Exit(1)
	}
}

// scan reports the vulnerabilities of programs to out, and returns an error if one is not accepted, or if the scan itself fails.
func scan(ctx context.Context, database, accepted string, programs []string, out io.Writer) error {
	if len(programs) == 0 {
		return errors.New("no program to scan: name the files, for example bin/symbols/liqo")
	}
	reasons, err := parseAccepted(accepted)
	if err != nil {
		return err
	}
	folder, remove, err := unpack(database)
	if err != nil {
		return err
	}
	defer remove()
	// govulncheck takes an empty directory for a database without vulnerabilities.
	entries, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	index, _ := filepath.Glob(filepath.Join(folder, "index", "modules.json*"))
	if len(entries)+len(index) == 0 {
		return fmt.Errorf("%s holds no database: neither index/modules.json nor entries in the OSV format; the Go project publishes one as vulndb.zip", database)
	}
	var bad []string
	for _, program := range programs {
		found, err := govulncheck(ctx, folder, program)
		if err != nil {
			return fmt.Errorf("scan %s: %w", program, err)
		}
		report := found.judge(reasons)
		for _, line := range report.lines {
			fmt.Fprintf(out, "%s: %s\n", program, line)
		}
		bad = append(bad, report.refused...)
		fmt.Fprintf(
			out, "%s: %d vulnerabilities linked in, %d accepted; database of %s\n", program, len(report.refused)+report.accepted, report.accepted,
			found.database,
		)
	}
	if len(bad) > 0 {
		return fmt.Errorf(
			"known vulnerabilities are linked in: %s; update the module or Go to the version that fixes it, or accept it with a reason in %s",
			strings.Join(bad, " "), acceptedFile,
		)
	}
	return nil
}

// govulncheck returns what govulncheck reports about one program.
func govulncheck(ctx context.Context, folder, program string) (findings, error) {
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}
	cmd := exec.CommandContext(
		ctx, "go", "tool", "-modfile=hack/tools/go.mod", "govulncheck", "-mode", "binary", "-format", "json", "-db", source.String(), program,
	)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return findings{}, fmt.Errorf("govulncheck with the database %s: %w", folder, err)
	}
	return parse(output)
}

// unpack returns the directory of a database, which may be an archive, and what removes the directory again.
func unpack(database string) (folder string, remove func(), _ error) {
	info, err := os.Stat(database)
	if err != nil {
		return "", nil, fmt.Errorf("read the database: %w", err)
	}
	if info.IsDir() {
		folder, err = filepath.Abs(database)
		return folder, func() {}, err
	}
	archive, err := zip.OpenReader(database)
	if err != nil {
		return "", nil, fmt.Errorf("the database %s is neither a directory nor a ZIP archive: %w", database, err)
	}
	defer archive.Close()
	folder, err = os.MkdirTemp("", "vulnerabilities-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(folder) }
	root, err := os.OpenRoot(folder) // no name in the archive leads out of it
	if err == nil {
		err = errors.Join(extract(archive.File, root), root.Close())
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("unpack %s: %w", database, err)
	}
	return folder, remove, nil
}

func extract(files []*zip.File, root *os.Root) error {
	for _, file := range files {
		if file.FileInfo().IsDir() {
			continue
		}
		if file.UncompressedSize64 > maxEntry {
			return fmt.Errorf("%s has %d bytes, more than %d", file.Name, file.UncompressedSize64, maxEntry)
		}
		if err := root.MkdirAll(filepath.Dir(file.Name), 0o700); err != nil {
			return err
		}
		in, err := file.Open()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(in, maxEntry))
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		if err := root.WriteFile(file.Name, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
