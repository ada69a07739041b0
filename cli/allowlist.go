package cli

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

func (p *plugin) allowlistCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allowlist",
		Short: "Test addresses against the allowlist of a merchant",
		Args:  needCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(p.allowlistTestCommand())
	return cmd
}

func (p *plugin) allowlistTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test MERCHANT ADDRESS",
		Short: "Say whether a merchant's keys are accepted from an address",
		Long: "Say whether the allowlist of a merchant has an address, with the code of the API.\n\n" +
			"The exit code is 0 if it has, and 3 if it has not.",
		Example: "  kubectl merchant allowlist test acme-coffee 203.0.113.7 -n shops\n" +
			"  kubectl merchant allowlist test acme-coffee 2001:db8::7 -n shops -o json",
		Args:              arguments("MERCHANT", "ADDRESS"),
		ValidArgsFunction: p.completeMerchants,
	}
	out := addOutput(cmd, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address, err := parseAddress("ADDRESS", args[1])
		if err != nil {
			return err
		}
		kube, err := p.connect()
		if err != nil {
			return err
		}
		merchant, err := kube.merchant(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		list, err := allowlist.Parse(merchant.Spec.IPAllowlist)
		if err != nil {
			return fmt.Errorf("read spec.ipAllowlist: %w", err)
		}
		found := addressTest{Address: address.String(), Allowed: list.Allows(address), Mode: merchant.Spec.IPAllowlistMode}
		for _, block := range list {
			if block.Contains(address) {
				found.Entries = append(found.Entries, block)
			}
		}
		if err := out.write(p.Out, found, func(to io.Writer) error { return found.writeText(to, len(list)) }); err != nil {
			return err
		}
		if !found.Allowed {
			return &notReadyError{}
		}
		return nil
	}
	return cmd
}

// addressTest is the result of a test; -o json prints it.
type addressTest struct {
	Address string `json:"address"`
	Allowed bool   `json:"allowed"`
	// Mode says whether the API refuses an address that is not allowed.
	Mode v1alpha1.IPAllowlistMode `json:"mode"`
	// Entries are those of the allowlist that have the address.
	Entries []netip.Prefix `json:"entries,omitempty"`
}

func (a addressTest) writeText(to io.Writer, entries int) error {
	switch {
	case entries == 0:
		fmt.Fprintf(to, "%s is allowed: the allowlist is empty, so any address is\n", a.Address)
	case a.Allowed:
		fmt.Fprintf(to, "%s is allowed by %s\n", a.Address, a.Entries[0])
	case a.Mode == v1alpha1.IPAllowlistReport:
		fmt.Fprintf(to, "%s is not on the allowlist; it is accepted only because spec.ipAllowlistMode is Report\n", a.Address)
	default:
		fmt.Fprintf(to, "%s is not on the allowlist\n", a.Address)
	}
	return nil
}
