"""What goes wrong in a simulated cluster. The simulation starts one fault after the other."""
