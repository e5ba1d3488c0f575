// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/image/oci"
)

func (a *app) build() *cobra.Command {
	return &cobra.Command{
		Use: "build [SCENARIO]", Short: "Build the programs and images of a scenario, or all",
		Long: `build compiles Kubernetes, etcd, containerd, runc, CoreDNS and the rest from their Go
modules. The first build takes ten to fifteen minutes on two cores. It keeps the results and
rebuilds a program only when its source, its pinned versions or the Go release change. up
builds what is missing of its scenario; build without a name builds everything.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			extras := build.AllExtras()
			if len(args) > 0 {
				s, err := readScenario(args[0])
				if err != nil {
					return err
				}
				extras = build.Extras(s.Clusters...)
			}
			set, err := a.set(cmd.Context(), extras...)
			if err != nil {
				return err
			}
			a.printf("%s\n", set.Dir)
			return nil
		},
	}
}

func (a *app) assets() *cobra.Command {
	return &cobra.Command{
		Use: "assets", Short: "Print the directory of etcd, kube-apiserver and kubectl, building them if need be",
		Long: `assets prints a directory for the variable KUBEBUILDER_ASSETS, by which integration tests
find an API server to run. It needs no root.`,
		Example: "  KUBEBUILDER_ASSETS=$(playground assets) go test ./...",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := a.builder()
			if err != nil {
				return err
			}
			dir, err := b.Assets(cmd.Context())
			if err != nil {
				return err
			}
			a.printf("%s\n", dir)
			return nil
		},
	}
}

// set is everything that each cluster is made of, with the given extra components, built if need be.
func (a *app) set(ctx context.Context, extras ...string) (build.Set, error) {
	b, err := a.builder()
	if err != nil {
		return build.Set{}, err
	}
	return b.Build(ctx, extras...)
}

func (a *app) image() *cobra.Command {
	group := &cobra.Command{Use: "image", Short: "Build images without Docker"}
	var output, binary, name string
	var packages, programs, files []string
	c := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Build an image that ships (demo, tools, ...), one around a static program, or one of Debian packages",
		Long: `build writes an OCI archive. The same input always gives the same digest. NAME is one of
the images that ship; with --binary, the image holds that one program; with --debian, programs
of Debian packages and all they link to.`,
		Example: `  playground image build tools
  playground image build --binary ./bin/my-server --name example.org/my-server:dev -o my-server.tar
  playground image build --debian redis-server --name example.org/redis:dev -o redis.tar`,
		Args: cobra.MaximumNArgs(1), ValidArgs: shippedImages(),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(packages) > 0 && binary == "" && len(args) == 0 && name != "" && output != "":
				return a.debianImage(cmd.Context(), output, image.Packaged{Name: name, Packages: packages, Programs: programs, Files: files})
			case len(packages)+len(programs)+len(files) > 0:
				return errors.New("an image of Debian packages needs --debian, --name and -o, and neither --binary nor a NAME argument")
			case binary != "" && len(args) == 0 && name != "" && output != "":
				img, err := image.StaticBinary(name, binary)
				if err != nil {
					return err
				}
				return a.writeImage(output, img)
			case binary != "" || name != "":
				return errors.New("an image around a program needs --binary, --name and -o, and no NAME argument")
			case len(args) == 0:
				return fmt.Errorf("which image? one of: %s; or give --binary", strings.Join(shippedImages(), ", "))
			}
			archive, err := a.archive(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if output == "" {
				a.printf("%s\n", archive)
				return nil
			}
			return copyFile(archive, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default for images that ship: in the cache, its path is printed)")
	c.Flags().StringVar(&binary, "binary", "", "static program that the image runs")
	c.Flags().StringSliceVar(&packages, "debian", nil, "Debian packages to take programs from")
	c.Flags().StringSliceVar(&programs, "program", nil, "with --debian: paths of programs to take, the first is what the image runs (default /usr/bin/PACKAGE)")
	c.Flags().StringSliceVar(&files, "file", nil, "with --debian: further files, directories or patterns to take that no program links to")
	c.Flags().StringVar(&name, "name", "", "full name of the image, NAME:TAG")
	group.AddCommand(c)
	return group
}

const toolsImage = "tools"

func shippedImages() []string { return append(build.SetImages(), toolsImage) }

func (a *app) writeImage(to string, img oci.Image) error {
	digest, err := oci.WriteFile(to, img)
	if err != nil {
		return err
	}
	a.printf("%s  %s  %s\n", to, img.Name, digest)
	return nil
}

func (a *app) debianImage(ctx context.Context, to string, ask image.Packaged) error {
	b, err := a.builder()
	if err != nil {
		return err
	}
	digest, err := b.FromDebian(ctx, ask, to)
	if err != nil {
		return err
	}
	a.printf("%s  %s  %s\n", to, ask.Name, digest)
	return nil
}

// archive returns the path of an image archive: a file as it is, or an image that ships,
// built if need be.
func (a *app) archive(ctx context.Context, name string) (string, error) {
	if !slices.Contains(shippedImages(), name) {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("no file %s, and no image of that name ships; those that do: %s", name, strings.Join(shippedImages(), ", "))
		}
		return name, nil
	}
	if name == toolsImage {
		b, err := a.builder()
		if err != nil {
			return "", err
		}
		return b.Tools(ctx)
	}
	set, err := a.set(ctx)
	if err != nil {
		return "", err
	}
	return filepath.Join(set.Tools().Images, name+".tar"), nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	return nil
}
