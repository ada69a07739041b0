package main

import (
	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/dispatcher"
)

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List webhook events that were given up, and send them again",
		Long: "An event is given up when its endpoint failed for the whole schedule, said that it is gone, or\n" +
			"was disabled. It is kept for 30 days.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(listDeadLettersCommand(), resendDeadLettersCommand())
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	var options dispatcher.ListOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the events that were given up",
		Example: "  merchant-operator dead-letters list --merchant mer_k3v9x0a7c2qd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			return dispatcher.ListDeadLetters(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.MerchantID, "merchant", "", "only those of the merchant with this id (mer_...); empty: of all")
	flags.IntVar(&options.Limit, "limit", 100, "the largest number to list; 0: all")
	flags.StringVarP(&options.Output, "output", "o", "table", "table or json")
	return cmd
}

func resendDeadLettersCommand() *cobra.Command {
	var options dispatcher.ResendOptions
	cmd := &cobra.Command{
		Use:   "resend [EVENT...]",
		Short: "Send events again that were given up",
		Long: "The events are due at once, with the id and the bytes they had, and begin their schedule anew.\n" +
			"An endpoint that is disabled has to be resumed first: see spec.webhook.resumeTrigger.",
		Example: "  merchant-operator dead-letters resend evt_0aK3v9...\n" +
			"  merchant-operator dead-letters resend --merchant mer_k3v9x0a7c2qd",
		RunE: func(cmd *cobra.Command, args []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			options.IDs = args
			return dispatcher.ResendDeadLetters(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.MerchantID, "merchant", "", "all events of the merchant with this id (mer_...)")
	flags.BoolVar(&options.All, "all", false, "all events of all merchants")
	return cmd
}
