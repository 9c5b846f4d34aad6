from mixit_titan.gpu_check.command import main

main()
